"""From where environments come to the lanes of a run: one ``HostEnv``, however it is stepped."""

from trimtab.envs.in_process import InProcessEnv
from trimtab.envs.sources import HostSource
from trimtab.envs.vector import VectorHostEnv
from trimtab.faults import FaultPolicy
from trimtab.types import HostEnv


def vectorize(source: HostSource, num_envs: int, policy: FaultPolicy) -> HostEnv:
    """That many lanes of the source; as many as it has, where it has its own number."""
    if source.make_host is not None:
        return source.make_host(num_envs)
    if source.make_vector is not None:
        return VectorHostEnv(source.make_vector(num_envs), policy, source.spec.id)
    assert source.make_env is not None
    return InProcessEnv(source.make_env, num_envs, policy)
