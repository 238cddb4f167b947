"""Evaluation on host environments: whole episodes, on lanes of their own."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.collect.episodes import first_memories
from trimtab.collect.host import Episode, EpisodeTally, copied, lane_seeds
from trimtab.keys import Purpose, lane_streams
from trimtab.spaces import EnvSpec, to_environment
from trimtab.training.evaluate import LONGEST_EPISODE, Episodes
from trimtab.types import HostEnv


def make_host_evaluator(
    make_env: Callable[[int], HostEnv], spec: EnvSpec, episodes: int, deterministic: bool
) -> Callable[[Any, Any, Array], Episodes]:
    """An ``evaluate(algorithm, learner, root) -> Episodes``, as ``make_evaluator`` gives one.

    ``make_env(episodes)`` makes the environments, with a lane for each episode where it can. They
    are closed again after each evaluation. Lanes that must play several episodes play equally
    many, to within one, so that short episodes do not count more often than long ones.
    """
    longest = spec.max_episode_steps or LONGEST_EPISODE

    @jax.jit
    def begin(algorithm: Any, learner: Any, root: Array, index: Array) -> Any:
        actor = algorithm.actor(learner)
        keys = lane_streams(root, Purpose.ACT, 0, index)
        return actor, first_memories(algorithm, actor, len(index)), keys

    @jax.jit
    def act(algorithm: Any, actor: Any, memory: Any, last: Any, obs: Any, keys: Any) -> Any:
        t, keys = keys

        def of_lane(memory: Any, last: Any, obs: Any, key: Array) -> Any:
            memory = algorithm.after_step(actor, memory, *last)
            if deterministic:
                action, memory = algorithm.best_action(actor, memory, obs)
            else:
                noise = algorithm.noise(actor, jax.random.fold_in(key, t), 1)[0]
                action, _, memory = algorithm.act(actor, memory, obs, noise)
            return to_environment(spec.action, action), memory

        return jax.vmap(of_lane)(memory, last, obs, keys)

    def evaluate(algorithm: Any, learner: Any, root: Array) -> Episodes:
        env = make_env(episodes)
        lanes = env.num_envs
        played: dict[int, list[Episode]] = defaultdict(list)
        quota = [len(range(lane, episodes, lanes)) for lane in range(lanes)]
        try:
            actor, memory, keys = begin(
                algorithm, learner, root, jnp.arange(lanes, dtype=jnp.int32)
            )
            obs = copied(env.reset(lane_seeds(root, 0, lanes)))
            tally = EpisodeTally(lanes)
            last = np.zeros(lanes, np.float32), np.ones(lanes, bool)
            for t in range(longest * max(quota)):
                actions, memory = act(algorithm, actor, memory, last, obs, (np.int32(t), keys))
                step = env.step(np.asarray(actions))
                ended = tally.add(step, env.idle)
                last = np.array(step.reward), ended if env.idle is None else ended | env.idle
                for episode in tally.take():
                    played[episode.lane].append(episode)
                if all(len(played[lane]) >= count for lane, count in enumerate(quota)):
                    break
                obs = copied(step.obs)
        finally:
            env.close()
        ended_ones = [played[lane][:count] for lane, count in enumerate(quota)]
        given_up = [
            tally.unfinished[lane] for lane, count in enumerate(quota) if len(played[lane]) < count
        ]
        found = [episode for lane in ended_ones for episode in lane]
        return Episodes(
            returns=np.array([e.total for e in [*found, *given_up]], np.float32),
            lengths=np.array([e.length for e in [*found, *given_up]], np.int32),
            ended=np.arange(len(found) + len(given_up)) < len(found),
        )

    return evaluate
