"""From where environments come to the lanes of a run: one ``HostEnv``, however it is stepped."""

import dataclasses

from trimtab.collect.settings import HostSettings, workers_for
from trimtab.collect.workers import WorkerPool
from trimtab.envs.in_process import InProcessEnv
from trimtab.envs.sources import HostSource
from trimtab.envs.vector import VectorHostEnv
from trimtab.errors import SettingError
from trimtab.types import HostEnv


def vectorize(source: HostSource, num_envs: int, settings: HostSettings) -> HostEnv:
    """That many lanes of the source; as many as it has, where it has its own number."""
    check_fits(source, settings)
    if settings.vectorization in ("workers", "async"):
        assert source.make_env is not None
        workers = workers_for(settings, num_envs)
        return WorkerPool(source.make_env, num_envs, workers, settings.policy, settings.deadlines)
    if source.make_host is not None:
        return source.make_host(num_envs, settings.policy)
    if source.make_vector is not None:
        return VectorHostEnv(source.make_vector(num_envs), settings.policy, source.spec.id)
    assert source.make_env is not None
    return InProcessEnv(source.make_env, num_envs, settings.policy)


def check_fits(source: HostSource, settings: HostSettings) -> None:
    """Refuse a mode in which the source's lanes cannot be stepped."""
    mode = settings.vectorization
    if mode in ("workers", "async") and source.make_env is None:
        raise SettingError(
            f"vectorization = {mode}: {source.spec.id} steps its lanes itself, so they cannot be "
            "shared over workers. Give what makes one gymnasium.Env, or leave vectorization as it "
            "is."
        )
    if mode == "envpool" and source.make_host is None:
        raise SettingError(
            f"vectorization = envpool: {source.spec.id} is not envpool's. Where envpool has it, "
            f"ask for 'envpool:{source.spec.id}'."
        )


def for_evaluation(settings: HostSettings, lanes: int) -> HostSettings:
    """The same environments, but for lanes that are waited for in every step."""
    if settings.vectorization not in ("workers", "async"):
        return settings
    workers = min(settings.num_workers, lanes)
    return dataclasses.replace(settings, vectorization="workers", num_workers=workers)
