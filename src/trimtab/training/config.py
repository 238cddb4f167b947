"""The settings of a run, apart from those of its algorithm. No JAX here: see ``settings``."""

import dataclasses
from typing import Literal

from trimtab.collect.settings import HostSettings
from trimtab.errors import SettingError
from trimtab.log.names import NameScheme
from trimtab.log.sinks import TrackerName
from trimtab.settings import setting

EVAL_COUNT = 5
MOST = 10**12  # lanes, and steps in each: memory is what bounds them


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSettings(HostSettings):
    """How long, on how many lanes, with which seed, and what is recorded on the way."""

    seed: int = setting(0, "root of all random numbers", at_least=0, at_most=2**31 - 1)
    total_steps: int = setting(
        500_000,
        "environment steps to train for; rounded up to whole updates",
        at_least=1,
        at_most=10**15,
    )
    num_envs: int = setting(
        32, "environments (lanes) stepped in parallel: N", at_least=1, at_most=MOST
    )
    num_steps: int = setting(
        32, "steps that each lane takes before an update: T", at_least=1, at_most=MOST
    )
    action_repeat: int = setting(
        1,
        "times that the environment takes each action; one step all the same",
        at_least=1,
        at_most=10_000,
    )
    max_episode_steps: int | None = setting(
        None,
        "episodes are truncated after this many steps; none: as the environment has it",
        at_least=1,
        at_most=10**9,
    )
    staggered_starts: Literal["auto", "on", "off"] = setting(
        "auto",
        "cut first episodes short, each lane's elsewhere, so that lanes do not reach the time "
        "limit in phase; auto: where only the clock ends episodes",
    )
    eval_every: int = setting(
        0, "updates between evaluations; 0 makes eval_count of them in the run", at_least=0
    )
    eval_count: int = setting(
        EVAL_COUNT, "evaluations in the run, evenly spaced, where eval_every is 0", at_least=1
    )
    eval_from_return: float | None = setting(
        None,
        "no evaluation before the mean return of recent training episodes has reached this; the "
        "last update is evaluated in any case",
        at_least=-1e9,
        at_most=1e9,
    )
    eval_episodes: int = setting(
        20, "episodes in each evaluation while training", at_least=1, at_most=MOST
    )
    eval_stochastic: bool = setting(
        False, "evaluate with sampled actions, in place of the most likely ones"
    )
    checkpoint_every: int = setting(
        0, "updates between checkpoints; 0 saves one with each evaluation", at_least=0
    )
    keep_every: int = setting(
        0,
        "updates between checkpoints that are kept for good, as update-N beside latest and best; "
        "0: none",
        at_least=0,
    )
    devices: str = setting(
        "auto", "devices that the lanes are shared over: auto, or a whole number"
    )
    track: tuple[TrackerName, ...] = setting(
        (), "trackers that are sent what is recorded: tensorboard, wandb, mlflow"
    )
    lab_every: int = setting(
        0,
        "updates between measurements of the gradient's noise, as metrics lab/…; 0: none; with 50 "
        "they cost less than 3% of a run",
        at_least=0,
        at_most=10**9,
    )
    metric_names: NameScheme = setting("sb3", "whose names for metrics trackers are given")
    track_project: str = setting("trimtab", "project of W&B, experiment of MLflow")
    tags: tuple[str, ...] = setting((), "words that trackers file the run under")


def check_lab(settings: TrainSettings) -> None:
    """The noise of a gradient is measured between lanes."""
    if settings.lab_every and settings.num_envs < 2:
        raise SettingError(
            f"lab_every = {settings.lab_every} compares lanes, and there is one: expected "
            "num_envs = 2 or more, or lab_every = 0."
        )


def check_tracking(settings: TrainSettings) -> None:
    """What is only for trackers has no effect without one."""
    if settings.track:
        return
    for name in ("metric_names", "track_project", "tags"):
        value, default = getattr(settings, name), getattr(TrainSettings(), name)
        if value != default:
            raise SettingError(
                f"{name} = {value!r} has no effect without a tracker. Name one with --track, or "
                f"leave it out."
            )


def batch_size(settings: TrainSettings) -> int:
    """Transitions in one rollout, N×T."""
    return settings.num_envs * settings.num_steps


def num_updates(settings: TrainSettings) -> int:
    """Updates in the run: the steps asked for, rounded up to whole rollouts."""
    return -(-settings.total_steps // batch_size(settings))


def check_evaluations(settings: TrainSettings) -> None:
    """Two settings say how often a run is evaluated: one of them."""
    if settings.eval_every and settings.eval_count != EVAL_COUNT:
        raise SettingError(
            f"eval_every = {settings.eval_every} and eval_count = {settings.eval_count} both say "
            f"how often to evaluate: give one of them."
        )
    if settings.eval_from_return is not None and evaluations_at(settings) == 1:
        raise SettingError(
            f"eval_from_return = {settings.eval_from_return:g} has no effect on a run that is "
            f"evaluated only at its end: give a smaller eval_every or a larger eval_count, or "
            f"leave it out."
        )


def shuffled_units(settings: TrainSettings, recurrent: bool) -> int:
    """What minibatches are made of: transitions, or the whole lanes of a recurrent policy."""
    return settings.num_envs if recurrent else batch_size(settings)


def check_minibatches(settings: TrainSettings, minibatches: int, recurrent: bool) -> None:
    """Every transition, or lane of a recurrent policy, is in one minibatch: they must divide."""
    count = shuffled_units(settings, recurrent)
    if count % minibatches == 0:
        return
    product = f"num_envs × num_steps = {settings.num_envs} × {settings.num_steps} ="
    what = f"num_envs = {count} lanes" if recurrent else f"{product} {count} transitions"
    why = ", and a recurrent policy (gru_units) learns from whole lanes" if recurrent else ""
    near = nearest_divisors(count, minibatches)
    raise SettingError(
        f"{what} cannot be split into minibatches = {minibatches} equal parts{why}. "
        f"Nearest that divide: {', '.join(map(str, near))}."
    )


def nearest_divisors(number: int, near: int) -> list[int]:
    """The three divisors of a number that are nearest to another, in order."""
    divisors = [d for d in range(1, min(number, 65_536) + 1) if number % d == 0]
    return sorted(sorted(divisors, key=lambda d: abs(d - near))[:3])


def eval_cadence(settings: TrainSettings) -> int:
    """Updates between evaluations."""
    return settings.eval_every or max(1, -(-num_updates(settings) // settings.eval_count))


def evaluations_at(settings: TrainSettings) -> int:
    """Evaluations in the run: one every so many updates, and one after the last."""
    return -(-num_updates(settings) // eval_cadence(settings))
