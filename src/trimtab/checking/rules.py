"""What plays say of an environment: each rule is a function from what was seen to findings."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from trimtab.checking.findings import Finding
from trimtab.checking.playing import Play
from trimtab.faults import LaneFault
from trimtab.spaces import Box, EnvSpec, is_image, leaf_spaces

# Beyond these sizes, networks and critics learn more slowly: both begin with numbers near 1.
LARGE, SMALL = 10.0, 0.01
FEW_STEPS = 100  # fewer say nothing of a scale
SLOW_TAIL, SLOW_SECONDS = 20.0, 1e-3  # a step is a straggler if it takes so much longer


# ------------------------------------------------------------------------------ spaces


def of_spaces(spec: EnvSpec) -> Iterator[Finding]:
    """What is odd about spaces that can be learned in."""
    for name, space in leaf_spaces(spec.observation):
        part = f"the observation's part {name!r}" if name else "the observation"
        if not isinstance(space, Box):
            continue
        low, high = space.bounds()
        if len(space.shape) == 3 and not is_image(space):
            yield Finding(
                "warning", "spaces", f"{part} has the shape of an image, {space.shape}, and is no "
                "uint8 nor between 0 and 1: it is flattened, and seen by no convolution",
                advice="give its Box(0, 255, …, dtype=np.uint8)",
            )  # fmt: skip
        if (low == high).any():
            yield Finding(
                "warning", "spaces", f"{part}{_index(low == high)} has a low that is its high",
                advice="leave out what never changes",
            )  # fmt: skip
    action = spec.action
    if isinstance(action, Box):
        low, high = action.bounds()
        bounded = action.bounded_elements()
        if not bounded.all():
            yield Finding(
                "warning", "spaces", f"the action{_index(~bounded)} has no bounds, so the policy's "
                "action, of a deviation of about 1, is taken as it is",
                advice="give the action's Box its low and high: actions are then scaled to it",
            )  # fmt: skip
        with np.errstate(over="ignore", invalid="ignore"):
            none = bounded & (high - low == 0)
        if none.any():
            yield Finding(
                "error", "spaces", f"the action{_index(none)} has a low that is its high",
                advice="leave it out: there is nothing to choose",
            )  # fmt: skip


# ------------------------------------------------------------------------------ faults


_ADVICE = (
    ("unexpected keyword argument", "def reset(self, *, seed=None, options=None)"),
    ("a tuple of 4", "return observation, reward, terminated, truncated, info"),
    ("reset() returned", "return observation, info"),
    ("has no part", "return every key of the space, from reset() as well as from step()"),
    ("took longer than", "find what it waits for; --vectorization workers ends it by a deadline"),
    ("the reward is", "return a float: float(reward)"),
    (" is nan", "find the division, root or logarithm that makes it"),
    (" is inf", "find the division or overflow that makes it"),
    (" has shape ", "give the space the shape that is returned, or reshape"),
    ("cannot hold", "scale it down"),
    ("a fraction would be cut off", "give the space a float dtype, or return whole numbers"),
    ("(dtype ", "return an array of numbers"),
    ("expected true or false", "return a bool"),
    (" raised ", "the traceback is below"),
)


def of_faults(play: Play) -> Iterator[tuple[Finding, Any]]:
    """A finding for each fault, and what makes two of them the same."""
    for fault in play.faults:
        yield _of_fault(fault), re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", fault.message)


def _of_fault(fault: LaneFault) -> Finding:
    moment = f"step {fault.step}" if fault.step else "the reset"
    where = f"{moment} of episode {fault.episode}" if fault.episode else f"{moment}"
    what, _, widen = fault.message.partition(" Widen the space")
    advice = next((words for mark, words in _ADVICE if mark in what), "")
    advice = f"widen the space{widen}".removesuffix(".") if widen else advice
    check = "values"
    if fault.kind != "bad" or "returned" in fault.message or "expected true" in fault.message:
        check = "reset" if fault.step == 0 or "reset()" in fault.message else "step"
    return Finding("error", check, what.removesuffix("."), where, advice, fault.traceback)


# ------------------------------------------------------------------------------ repetition


def of_repetition(one: Play, other: Play, what: str) -> Iterator[Finding]:
    """Two plays with the same seeds and actions must be the same, step by step."""
    advice = (
        "draw from self.np_random, which reset(seed=…) seeds, and from no other generator; let "
        "reset() set all of the state"
    )
    if difference := _difference(one.first, other.first):
        yield Finding(
            "error",
            "determinism",
            f"{what}: the first observation{difference}",
            "the reset",
            advice,
        )
        return
    for number in range(min(one.comparable, other.comparable)):
        names = ["the reward", "terminated", "truncated"]
        names += ["the observation"] * (len(one.rows[number]) - 3)
        for name, left, right in zip(names, one.rows[number], other.rows[number], strict=True):
            if difference := _difference([left], [right]):
                yield Finding(
                    "error", "determinism", f"{what}: {name}{difference}",
                    f"step {number + 1} of the play", advice,
                )  # fmt: skip
                return


def of_seeds(one: Play, other: Play) -> Iterator[Finding]:
    """A play with other seeds must not be the same."""
    if _difference(one.first, other.first):
        return
    steps = min(one.comparable, other.comparable)
    rows = zip(one.rows[:steps], other.rows[:steps], strict=True)
    if any(_difference(left, right) for left, right in rows):
        return
    yield Finding(
        "warning", "seeds",
        f"another seed gives the same first observation, and the same actions the same {steps:,} "
        "steps: nothing is random",
        advice="draw the first state from self.np_random; or, if it is meant so, know that a "
        "policy may learn the sequence by heart",
    )  # fmt: skip


def of_later_resets(firsts: list[list[np.ndarray]], others: list[list[np.ndarray]]) -> Any:
    """First observations of successive episodes, and of differently seeded ones."""
    same = all(not _difference(firsts[0], later) for later in firsts[1:])
    if same and any(_difference(others[0], other) for other in others[1:]):
        yield Finding(
            "warning", "seeds", "reset() without a seed begins every episode alike, though seeds "
            "differ: training would see one beginning only",
            advice="seed the generator only where a seed is given: super().reset(seed=seed)",
        )  # fmt: skip


def _difference(ones: list[Any], others: list[Any]) -> str:
    """Where two lists of arrays differ first, in words, or nothing."""
    for one, other in zip(ones, others, strict=True):
        same = (one == other) | ((one != one) & (other != other))
        if not np.all(same):
            place = tuple(int(i) for i in np.argwhere(~np.asarray(same))[0])
            index = f"[{', '.join(map(str, place[1:]))}]" if len(place) > 1 else ""
            return f"{index} is {one[place]} once and {other[place]} then"
    return ""


# ------------------------------------------------------------------------------ episodes


def of_episodes(play: Play, spec: EnvSpec) -> Iterator[Finding]:
    """Whether episodes end, when, and by which flag."""
    limit = spec.max_episode_steps
    longest = max((length for length, _ in play.ends), default=0)
    longest = max(longest, *(episode.length for episode in play.unfinished), 0)
    if limit is not None and longest > limit:
        yield Finding(
            "error", "episodes", f"an episode took {longest:,} steps, and its limit is {limit:,}",
            advice="truncate there, or give the specification its true max_episode_steps",
        )  # fmt: skip
    if not play.ends and limit is None and longest >= FEW_STEPS:
        yield Finding(
            "warning", "episodes", f"no episode ended within {longest:,} steps, and there is no "
            "time limit",
            advice="--max-episode-steps 1000, or gymnasium.wrappers.TimeLimit",
        )  # fmt: skip
    full = [truncated for length, truncated in play.ends if length == limit]
    if len(full) >= 2 and not any(full):
        yield Finding(
            "warning", "episodes", f"{len(full)} episodes ended at the limit of {limit:,} steps, "
            "and each said terminated: nothing would be worth anything there",
            advice="if it is the clock that ends them, return truncated=True, terminated=False",
        )  # fmt: skip
    if limit is None and len(play.ends) >= 5:
        lengths = {length for length, _ in play.ends}
        if len(lengths) == 1 and not any(cut for _, cut in play.ends) and longest > 1:
            yield Finding(
                "warning", "episodes", f"every episode took {longest:,} steps and said terminated: "
                "that looks like a clock",
                advice="if it is one, return truncated=True, terminated=False",
            )  # fmt: skip


# ------------------------------------------------------------------------------ scale


def of_observation_scale(play: Play, spec: EnvSpec) -> Iterator[Finding]:
    """Whether numbers are of a size that a network learns from."""
    mend = "--normalize-observations"
    for (name, space), seen in zip(leaf_spaces(spec.observation), play.figures, strict=False):
        if not isinstance(space, Box) or is_image(space) or seen.count < FEW_STEPS:
            continue
        part = f"the observation's part {name!r}" if name else "the observation"
        moving = seen.high > seen.low
        if (seen.rms > LARGE).any():
            worst = np.unravel_index(int(seen.rms.argmax()), seen.rms.shape)
            yield Finding(
                "warning", "observation scale", f"{part}{_place(worst)} is about "
                f"{seen.rms[worst]:.3g} in size, from {seen.low[worst]:.3g} to "
                f"{seen.high[worst]:.3g}", advice=mend,
            )  # fmt: skip
        elif moving.any() and (seen.rms[moving] < SMALL).all():
            yield Finding(
                "warning", "observation scale", f"{part} is at most {seen.rms.max():.2g} in size",
                advice=mend,
            )  # fmt: skip
        if not moving.all() and spec.max_episode_steps != 1:
            yield Finding(
                "note", "observation scale",
                f"{part}{_index(~moving)} never changed under random actions",
                advice="leave out what never changes; it may need better actions to",
            )  # fmt: skip


def of_reward_scale(play: Play) -> Iterator[Finding]:
    """Whether rewards are of a size that a critic learns from."""
    seen = play.rewards
    if seen.count < FEW_STEPS:
        return
    low, high, size = float(seen.low), float(seen.high), float(seen.rms)
    if low == high == 0:
        yield Finding(
            "warning", "reward scale", f"no reward but 0 in {seen.count:,} random steps",
            advice="an untrained policy has nothing to learn from: reward progress, begin nearer "
            "to the goal, or explore (--entropy-coefficient 0.01)",
        )  # fmt: skip
    elif size > LARGE:
        yield Finding(
            "warning", "reward scale", f"rewards are about {size:.3g} in size, from {low:.4g} to "
            f"{high:.4g}", advice=f"--normalize-rewards, or --reward-scale {_nice(1 / size)}",
        )  # fmt: skip
    elif max(abs(low), abs(high)) < SMALL:
        yield Finding(
            "warning", "reward scale", f"rewards are at most {max(abs(low), abs(high)):.2g} in "
            "size", advice=f"--normalize-rewards, or --reward-scale {_nice(1 / size)}",
        )  # fmt: skip


def _nice(number: float) -> str:
    """A power of ten near a number."""
    return f"{10 ** round(float(np.log10(number))):g}"


# ------------------------------------------------------------------------------ speed


def of_speed(seconds: list[float]) -> Iterator[Finding]:
    """Whether some steps are waited for by all lanes."""
    if len(seconds) < FEW_STEPS:
        return
    middle, slow = np.percentile(seconds, [50, 99])
    if slow > SLOW_SECONDS and slow > SLOW_TAIL * middle:
        yield Finding(
            "warning", "speed", f"one step in a hundred takes {slow / middle:.0f} times as long as "
            f"most: {duration(slow)} beside {duration(middle)}",
            advice="--vectorization async lets the other lanes go on meanwhile",
        )  # fmt: skip


def duration(seconds: float) -> str:
    """3.1 µs, 5.0 ms or 1.2 s"""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def _index(where: np.ndarray) -> str:
    """Which elements, as ``[2], [5]``; nothing if it is all of a single number."""
    places = np.argwhere(where)
    if not where.shape or len(places) == where.size:
        return ""
    shown = [_place(tuple(place)) for place in places[:4]]
    return ", ".join(shown) + (f" and {len(places) - 4} more" if len(places) > 4 else "")


def _place(place: Any) -> str:
    return f"[{', '.join(str(int(i)) for i in place)}]" if len(place) else ""
