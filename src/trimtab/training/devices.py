"""Which devices a run uses, and how JAX is started for them.

Lanes are shared over devices, parameters are replicated. Two CPU cores are two devices, eight GPUs
are eight: the mechanism is the same. What is measured here is in docs/performance.md.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

from trimtab.errors import SettingError

# Gradient steps on fewer transitions than this per device lose more to the all-reduce than a
# second device gains.
SMALLEST_SHARE = 1024
# Below this many transitions × parameters in a gradient step, XLA's threads cost more than they
# bring, and one thread is faster.
SINGLE_THREAD_WORK = 12_000_000
CACHE_BYTES = 256 * 1024**2


@dataclasses.dataclass(frozen=True)
class DevicePlan:
    """How many devices share the lanes, and in which threads XLA computes."""

    devices: int
    single_thread: bool
    # Whether a CPU program is computed by the thread that calls it. A hand-over to another one and
    # back takes longer than a small policy's step; fused runs, which call seldom, do not want it.
    inline: bool = False


def plan(
    requested: str, num_envs: int, batch: int, units: int, minibatches: int, parameters: int
) -> DevicePlan:
    """The plan for ``--devices``: a number, or auto, which judges by the size of a minibatch.

    ``units`` are what each device shuffles into minibatches: transitions, or whole lanes.
    """
    if requested != "auto":
        count = _device_count(requested, num_envs, units, minibatches)
        return DevicePlan(count, single_thread=False)
    available = cores()
    share = batch // minibatches
    count = 1
    for candidate in range(2, available + 1):
        divides = num_envs % candidate == 0 and (units // candidate) % minibatches == 0
        if divides and share // candidate >= SMALLEST_SHARE:
            count = candidate
    return DevicePlan(count, count == 1 and share * parameters < SINGLE_THREAD_WORK)


def host_plan(requested: str, minibatch: int, parameters: int, first_come: bool) -> DevicePlan:
    """The plan for a run whose environments are outside of the compiled program.

    One thread would make lanes that are served first come, first served wait for the learner.
    """
    if requested not in ("auto", "1"):
        raise SettingError(
            f"devices = {requested} has no effect on an environment outside of the compiled "
            "program: such a run learns on one device. Leave it at auto."
        )
    small = minibatch * parameters < SINGLE_THREAD_WORK
    return DevicePlan(1, single_thread=small and not first_come, inline=not first_come)


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _device_count(requested: str, num_envs: int, units: int, minibatches: int) -> int:
    if not requested.isdigit() or int(requested) < 1:
        raise SettingError(f"devices = {requested!r}: expected 'auto' or a whole number from 1.")
    count = int(requested)
    if num_envs % count or (units // count) % minibatches:
        raise SettingError(
            f"devices = {count} cannot share num_envs = {num_envs} lanes evenly, with each share "
            f"in equal minibatches. Give a num_envs that is a multiple of {count}, or "
            f"--devices auto."
        )
    return count


def start_jax(wanted: DevicePlan) -> DevicePlan:
    """Start JAX for the plan, if nothing has started it yet, and say what there is.

    A process that uses trimtab as a library may have started JAX already; then its devices are
    taken as they are.
    """
    if "--xla_cpu_prefer_vector_width" not in os.environ.get("XLA_FLAGS", ""):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_prefer_vector_width=512"
        os.environ["XLA_FLAGS"] = flags.strip()
    single_thread, inline = wanted.single_thread and "NPROC" not in os.environ, wanted.inline
    if single_thread:
        os.environ["NPROC"] = "1"
    import jax

    use_compilation_cache(jax)
    try:
        jax.config.update("jax_num_cpu_devices", wanted.devices)
        jax.config.update("jax_cpu_enable_async_dispatch", not inline)
    except RuntimeError:  # it had started
        single_thread = inline = False
    available = len(jax.devices())
    if single_thread:
        # XLA has read it by now; processes that this one starts shall not inherit it.
        del os.environ["NPROC"]
    count = wanted.devices if available >= wanted.devices else 1
    return DevicePlan(count, single_thread, inline)


def use_compilation_cache(jax: Any) -> None:
    """Keep compiled programs in the user's cache folder, unless TRIMTAB_CACHE=off."""
    folder = cache_folder()
    if folder is None or jax.config.jax_compilation_cache_dir:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder / "programs"))
    jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def cache_folder() -> Path | None:
    """Where programs are kept for later processes; None with TRIMTAB_CACHE=off."""
    if os.environ.get("TRIMTAB_CACHE") == "off":
        return None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab"
