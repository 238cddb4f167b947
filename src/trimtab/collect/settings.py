"""The settings of environments that are outside of the compiled program. No JAX here.

They are fields of ``TrainSettings``. A setting that has no effect in a configuration is refused.
"""

import dataclasses
import os
from typing import Literal

from trimtab.errors import SettingError
from trimtab.faults import RESTART_WINDOW, Deadlines, FaultPolicy
from trimtab.settings import setting, setting_names

_MOST_WORKERS = 16  # that are chosen without being asked for


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostSettings:
    """How host environments are stepped, and what is done when they break."""

    vectorization: Literal["auto", "in-process", "workers", "async", "envpool"] = setting(
        "auto",
        "how environments outside of the compiled program are stepped; auto measures, async is "
        "workers, first come first served",
    )
    num_workers: int = setting(
        0, "worker processes, which share the lanes; 0 chooses one for each core", at_least=0
    )
    overlap: bool = setting(
        False, "collect the next rollout while learning, with the policy from before that update"
    )
    max_staleness: int = setting(
        4, "with async: updates by which a policy may be older than the learner", at_least=0
    )
    on_bad_env: Literal["raise", "reset"] = setting(
        "raise", "what a NaN, a wrong shape or the like from an environment leads to"
    )
    observation_bounds: Literal["enforce", "ignore"] = setting(
        "enforce", "whether an observation outside of its Box's bounds is one of those"
    )
    max_restarts: int = setting(
        10, f"restarts of a lane within {RESTART_WINDOW:,} of its steps", at_least=0
    )
    step_deadline: float = setting(
        60.0, "seconds that one step of a worker's lanes may take", above=0
    )
    start_deadline: float = setting(
        120.0, "seconds that a worker's environments may take to be made and reset", above=0
    )

    @property
    def policy(self) -> FaultPolicy:
        return FaultPolicy(self.on_bad_env, self.max_restarts, self.observation_bounds)

    @property
    def deadlines(self) -> Deadlines:
        return Deadlines(self.step_deadline, self.start_deadline)

    @property
    def reproducible(self) -> bool:
        """Whether the same seed gives the same run."""
        return self.vectorization != "async"


def check_host(settings: HostSettings, num_envs: int) -> None:
    """Refuse what contradicts itself, or has no effect."""
    mode = settings.vectorization
    if mode not in ("workers", "async"):
        _need_default(settings, ("num_workers",), "without workers: add --vectorization workers")
    if mode not in ("workers", "async", "auto"):
        _need_default(
            settings,
            ("step_deadline", "start_deadline"),
            f"with vectorization = {mode}: only worker processes can be ended from outside",
        )
    if mode != "async":
        _need_default(settings, ("max_staleness",), "without --vectorization async")
    else:
        _need_default(settings, ("overlap",), "with async, which never waits for the learner")
    if settings.num_workers > num_envs:
        raise SettingError(
            f"num_workers = {settings.num_workers} is not valid: expected at most the number of "
            f"lanes, num_envs = {num_envs}."
        )
    if mode == "async" and settings.num_workers and num_envs % settings.num_workers:
        divisors = [n for n in range(1, num_envs + 1) if num_envs % n == 0]
        raise SettingError(
            f"num_envs = {num_envs} lanes cannot be shared equally over num_workers = "
            f"{settings.num_workers}, as async needs. Those that divide: "
            f"{', '.join(map(str, divisors))}."
        )


def refuse_host_settings(settings: HostSettings, env_id: str) -> None:
    """For an environment that is in the compiled program, where none of them has an effect."""
    why = f"on {env_id}, which is in the compiled program; a host environment has a backend, such "
    _need_default(settings, tuple(setting_names(HostSettings())), f"{why}as gymnasium:{env_id}")


def workers_for(settings: HostSettings, num_envs: int) -> int:
    """How many workers: as many as asked for, else one for each core.

    First come, first served is for environments that are waited for: up to 16 then, and the lanes
    are shared equally.
    """
    if settings.num_workers:
        return settings.num_workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if settings.vectorization != "async":
        return min(num_envs, cores or 1)
    return max(n for n in range(1, min(num_envs, _MOST_WORKERS) + 1) if num_envs % n == 0)


def _need_default(settings: HostSettings, names: tuple[str, ...], where: str) -> None:
    for name in names:
        value, default = getattr(settings, name), getattr(HostSettings(), name)
        if value != default:
            raise SettingError(f"{name} = {value} has no effect {where}.")
