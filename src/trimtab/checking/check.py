"""``check_env``: looks at an environment from every side, through the adapters of training.

Gymnasium environments are played one at a time, in process; a vector environment as it is; JAX
environments in a few lanes. Each is played with random actions: twice alike, for determinism; once
with other seeds; and again from the same seeds in the same object, which must forget what it did.
"""

import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np

from trimtab.checking import rules
from trimtab.checking.findings import CHECKS, EnvReport, Finding, Findings
from trimtab.checking.playing import LENIENT, Play, leaves_of, play
from trimtab.checking.watched import WatchedEnv
from trimtab.collect.random_actions import random_actions
from trimtab.envs.gymnasium_spaces import spec_of
from trimtab.envs.in_process import InProcessEnv
from trimtab.envs.lane_group import name_of
from trimtab.envs.make import find, maker_of
from trimtab.envs.patience import at_most
from trimtab.envs.sources import HostSource, kind_of, made_by
from trimtab.envs.vector import VectorHostEnv
from trimtab.errors import EnvironmentFaultError, TrimtabError, UnsupportedSpaceError
from trimtab.faults import FaultPolicy
from trimtab.spaces import EnvSpec, to_environment, zeros
from trimtab.types import HostEnv

JAX_LANES = 8


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long an environment is looked at; the first of these to be reached ends a play."""

    steps: int = 1_000
    episodes: int = 100
    seconds: float = 10.0
    deadline: float = 10.0  # of one call of step(), reset() or the constructor


def effort_of(steps: int, episodes: int) -> Effort:
    return Effort(steps, episodes)


@final
class _Subject:
    """An environment under test: makes it anew for each play, and remembers what is watched."""

    def __init__(self, make: Callable[["_Subject"], HostEnv], lanes: int):
        self._make = make
        self.lanes = lanes
        self.watched: list[WatchedEnv] = []

    def made(self) -> HostEnv:
        return self._make(self)


def check_env(
    env: Any,
    *,
    options: Mapping[str, Any] | None = None,
    steps: int = Effort.steps,
    episodes: int = Effort.episodes,
) -> EnvReport:
    """What is wrong with an environment, and what it is like; nothing is trained.

    ``env`` is whatever ``train`` takes: an id, a callable that makes a ``gymnasium.Env``, an
    ``Env``, a vector of them, or a JAX environment. A play ends after that many steps of a lane or
    that many episodes, or after ten seconds.
    """
    effort, findings = effort_of(steps, episodes), Findings()
    make_env = maker_of(env, **(options or {}))
    made: Any = None
    if make_env is not None:
        name = name_of(make_env)
        made = _construct(make_env, name, findings, effort.deadline)
        if made is None:
            return EnvReport(name, findings.listed(), ["construction"], {})
    if make_env is not None and kind_of(made) == "env":
        spec = _spec(made, findings)
        made.close()
        if spec is None:
            return EnvReport(name_of(make_env), findings.listed(), ["construction", "spaces"], {})
        subject = _of_env(make_env, findings, effort)
        return _report(spec, subject, findings, effort)
    source = find(env, **(options or {}))
    if isinstance(source, HostSource) and source.make_env is not None:
        return _report(source.spec, _of_env(source.make_env, findings, effort), findings, effort)
    if isinstance(source, HostSource):
        return _report(source.spec, _of_vector(source), findings, effort)
    from trimtab.checking.traced import of_tracing
    from trimtab.collect.jax_lanes import JaxLanes

    findings.extend(of_tracing(source))
    if findings.has_errors():
        looked_at = ["construction", "reset", "step"]
        return EnvReport(source.spec.id, findings.listed(), looked_at, {})
    subject = _Subject(lambda _: JaxLanes(source, JAX_LANES), JAX_LANES)
    return _report(source.spec, subject, findings, effort)


def _report(spec: EnvSpec, subject: _Subject, findings: Findings, effort: Effort) -> EnvReport:
    findings.extend(rules.of_spaces(spec))
    plays = _play(subject, findings, effort)
    figures = _judge(plays, subject, spec, findings)
    return EnvReport(spec.id, findings.listed(), _looked_at(plays), figures)


def _looked_at(plays: "_Plays") -> list[str]:
    """The checks that the plays were long enough for."""
    first, missing = plays.first, set()
    if plays.again is None or not min(first.comparable, plays.again.comparable):
        missing |= {"determinism", "seeds"}
    if first.rewards.count < rules.FEW_STEPS:
        missing |= {"observation scale", "reward scale", "speed"}
    if not first.ends and first.rewards.count < rules.FEW_STEPS:
        missing |= {"episodes"}
    return [check for check in CHECKS if check not in missing]


# ------------------------------------------------------------------------------ making


def _construct(make_env: Callable[[], Any], name: str, findings: Findings, deadline: float) -> Any:
    """An environment, or None and a finding."""
    try:
        with at_most(deadline, "the constructor"):
            made = made_by(make_env, name)
    except EnvironmentFaultError as error:
        findings.add(Finding("error", "construction", f"{name}: {error}".removesuffix("."),
                             advice="find what it waits for"))  # fmt: skip
        return None
    except TrimtabError:
        raise
    except Exception as error:
        findings.add(Finding("error", "construction", f"{name}: {_told(error)}",
                             advice="the traceback is below",
                             traceback=traceback.format_exc()))  # fmt: skip
        return None
    if kind_of(made):
        return made
    kind = f"{type(made).__module__}.{type(made).__name__}"
    findings.add(
        Finding("error", "construction", f"{name} made a {kind}, which is no gymnasium.Env",
                advice="derive it from gymnasium.Env; one of the older Gym is wrapped by shimmy")
    )  # fmt: skip
    return None


def _spec(made: Any, findings: Findings) -> EnvSpec | None:
    """What it says of itself, or None and a finding."""
    for role in ("observation_space", "action_space"):
        if getattr(made, role, None) is None:
            findings.add(Finding("error", "spaces", f"it has no {role}",
                                 advice=f"set self.{role} in __init__"))  # fmt: skip
            return None
    try:
        spec = spec_of(made)
        to_environment(spec.action, zeros(spec.action))
        return spec
    except UnsupportedSpaceError as error:
        what, _, advice = str(error).rpartition("Wrap ")
        findings.add(Finding("error", "spaces", what.strip(" ."), advice=f"wrap {advice}"))
    except (AttributeError, TypeError) as error:
        findings.add(Finding("error", "spaces", f"its spaces are not Gymnasium's: {_told(error)}",
                             advice="import them from gymnasium.spaces"))  # fmt: skip
    return None


def _of_env(make_env: Callable[[], Any], findings: Findings, effort: Effort) -> _Subject:
    def make(subject: _Subject) -> HostEnv:
        def watched() -> Any:
            subject.watched.append(WatchedEnv(make_env(), findings, effort.deadline))
            return subject.watched[-1]

        return InProcessEnv(watched, 1, LENIENT)

    return _Subject(make, 1)


def _of_vector(source: HostSource) -> _Subject:
    """Vectors mostly cannot mend one lane: what is wrong ends the play."""
    lanes = source.num_envs or JAX_LANES
    policy = FaultPolicy()
    if source.make_host is not None:
        make_host = source.make_host
        return _Subject(lambda _: make_host(lanes, policy), lanes)
    make_vector = source.make_vector
    assert make_vector is not None
    return _Subject(lambda _: VectorHostEnv(make_vector(lanes), policy, source.spec.id), lanes)


# ------------------------------------------------------------------------------ playing


@dataclasses.dataclass
class _Plays:
    """What was seen; some plays are left out where the first went wrong from the start."""

    first: Play
    again: Play | None = None
    same_object: Play | None = None
    others: Play | None = None
    beginnings: list[list[np.ndarray]] = dataclasses.field(default_factory=list)
    seeded: list[list[np.ndarray]] = dataclasses.field(default_factory=list)


def _play(subject: _Subject, findings: Findings, effort: Effort) -> _Plays:
    seeds = [100 + lane for lane in range(subject.lanes)]
    others = [seed + 10_000 for seed in seeds]

    def whole(env: HostEnv, seeds: list[int], share: float = 1.0) -> Play:
        return play(
            env, seeds, max(1, int(effort.steps * share)), effort.episodes, effort.seconds * share
        )

    plays = _Plays(Play(subject.lanes))
    try:
        with contextlib.closing(subject.made()) as env:
            plays.first = whole(env, seeds)
        if plays.first.broken_at == 0 or not plays.first.rows:
            return plays
        with contextlib.closing(subject.made()) as env:
            plays.again = whole(env, seeds, 0.3)
            plays.same_object = whole(env, seeds, 0.3)
            plays.others = whole(env, others, 0.3)
            plays.seeded = [plays.first.first, plays.others.first]
            plays.beginnings = _beginnings(env, seeds)
    except Exception as error:  # of an environment's own code, where no adapter expects one
        findings.add(Finding("error", "construction", _told(error), advice="see the traceback",
                             traceback=traceback.format_exc()))  # fmt: skip
    return plays


def _beginnings(env: HostEnv, seeds: list[int]) -> list[list[np.ndarray]]:
    """First observations of the first episodes after a seeded reset, which is not among them."""
    spec, rng, found = env.spec, np.random.default_rng(1), []
    with contextlib.suppress(EnvironmentFaultError):  # a play has told of it already
        obs = env.reset(seeds)
        for _ in range(500):
            step = env.step(random_actions(spec, obs, env.num_envs, rng))
            obs = step.obs
            if step.terminated[0] or step.truncated[0]:
                found.append([leaf[:1].copy() for leaf in leaves_of(obs)])
                if len(found) == 3:
                    break
    return found


# ------------------------------------------------------------------------------ judging


def _judge(plays: _Plays, subject: _Subject, spec: EnvSpec, findings: Findings) -> dict[str, Any]:
    first = plays.first
    for one in filter(None, (first, plays.again, plays.same_object, plays.others)):
        for finding, same_as in rules.of_faults(one):
            findings.add(finding, same_as)
        if one.ended_by and not findings.has_errors():
            findings.add(Finding("error", "step", one.ended_by.splitlines()[0],
                                 traceback=one.ended_by))  # fmt: skip
    if plays.again is not None and plays.same_object is not None and plays.others is not None:
        again = list(rules.of_repetition(first, plays.again, "made anew, with the same seed"))
        findings.extend(again)
        if not again:
            what = "reset again with the same seed"
            findings.extend(rules.of_repetition(plays.again, plays.same_object, what))
        findings.extend(rules.of_seeds(plays.again, plays.others))
        if len(plays.beginnings) > 1:
            seeded = [[leaf[:1] for leaf in one] for one in plays.seeded]
            findings.extend(rules.of_later_resets(plays.beginnings, seeded))
    findings.extend(rules.of_episodes(first, spec))
    findings.extend(rules.of_observation_scale(first, spec))
    findings.extend(rules.of_reward_scale(first))
    step_seconds = [t for env in subject.watched for t in env.step_seconds]
    reset_seconds = [t for env in subject.watched for t in env.reset_seconds]
    seconds = step_seconds or [t / subject.lanes for t in first.seconds[1:]]
    findings.extend(rules.of_speed(seconds))
    return _figures(first, spec, seconds, reset_seconds)


def _figures(
    seen: Play, spec: EnvSpec, seconds: list[float], reset_seconds: list[float]
) -> dict[str, Any]:
    """What it is like, in numbers."""
    returns = np.array([episode.total for episode in seen.episodes])
    lengths = [episode.length for episode in seen.episodes]
    figures: dict[str, Any] = {
        "observation": str(spec.observation),
        "action": str(spec.action),
        "max_episode_steps": spec.max_episode_steps,
        "solved_at": spec.solved_at,
        "steps": seen.steps,
        "episodes": len(returns),
    }
    if len(returns):
        error = float(returns.std(ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else None
        figures |= {
            "random_return_mean": float(returns.mean()),
            "random_return_standard_error": error,
            "random_length_mean": float(np.mean(lengths)),
        }
    for name, times in (("step", seconds), ("reset", reset_seconds)):
        if times:
            low, middle, high = np.percentile(times, [10, 50, 99])
            figures |= {
                f"{name}_seconds_median": float(middle),
                f"{name}_seconds_p10": float(low),
                f"{name}_seconds_p99": float(high),
            }
    return figures


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
