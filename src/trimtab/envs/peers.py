"""Gymnasium's own vector environments, to be measured beside trimtab's."""

from collections.abc import Callable, Iterator
from typing import Any

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv


def gymnasium_steppers(
    make_env: Callable[[], Any], num_envs: int
) -> Iterator[tuple[str, Callable[[], tuple[Callable[[], Any], Callable[[], None]]]]]:
    """Name, and what begins, for each: it gives what steps all lanes, and what closes them."""

    def of(made: Any) -> tuple[Callable[[], Any], Callable[[], None]]:
        made.reset(seed=0)
        made.action_space.seed(0)
        actions = [made.action_space.sample() for _ in range(64)]
        count = iter(range(10**9))
        return (lambda: made.step(actions[next(count) % 64])), made.close

    makers = [make_env] * num_envs
    yield "gymnasium Sync", lambda: of(SyncVectorEnv(makers))
    # Not forked: JAX has threads, and a fork would copy their locks.
    yield "gymnasium Async", lambda: of(AsyncVectorEnv(makers, context="spawn"))
