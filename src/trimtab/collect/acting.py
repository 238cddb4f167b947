"""The compiled programs with which the lanes of host environments act: one call a step."""

from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.collect.episodes import first_memories
from trimtab.keys import Purpose, lane_streams
from trimtab.spaces import Space, to_environment, zeros
from trimtab.types import Memory, Observation, Rollout

# Each array that a call is given costs it some time, which a small policy feels. Arrays up to this
# many numbers are given as one; cutting a larger one out of that would cost more.
MOST_PACKED = 16_384


class Prepared(NamedTuple):
    """What acting needs of the learner, in few arrays, since every step is given them."""

    packed: Array  # the small arrays of (algorithm, actor) side by side
    large: list[Array]  # and its others
    noise: Array  # [T, N, ...]: the random numbers of a rollout

    def followed_by(self, later: "Prepared") -> "Prepared":
        """With the random numbers of the rollout after it, for lanes that are ahead."""
        return self._replace(noise=jnp.concatenate([self.noise, later.noise]))


class Acted(NamedTuple):
    """What the lanes do; leaves are [N, ...]."""

    action: Array  # the policy's, which the rollout keeps
    taken: Array | None  # the environment's, where that is another
    extras: dict[str, Array]
    memory: Memory


@final
class ActingPrograms:
    """Acts for N lanes with the policy of ``algorithm`` and ``learner``, or of others like them.

    Only the shapes of the two matter here.
    """

    def __init__(
        self, algorithm: Any, learner: Any, action_space: Space, lanes: int, num_steps: int
    ):
        shapes = jax.eval_shape(lambda a, b: (a, a.actor(b)), algorithm, learner)
        self._shapes, self._tree = jax.tree.flatten(shapes)
        self._space = action_space
        self._index = jnp.arange(lanes, dtype=jnp.int32)
        self._num_steps = num_steps
        self._counters = list(jnp.arange(num_steps, dtype=jnp.int32))
        self.prepare = jax.jit(self._prepare)
        self.first_memories = jax.jit(self._first_memories)
        self._act = jax.jit(self._act_program)
        self._remember = jax.jit(self._remember_program)

    def compile(self, algorithm: Any, learner: Any, observation: Space) -> Rollout:
        """Compile all that a usual rollout calls; the shapes of one."""
        lanes = len(self._index)
        obs = jax.tree.map(lambda leaf: np.stack([leaf] * lanes), zeros(observation))
        reward, flag = np.zeros(lanes, np.float32), np.zeros(lanes, bool)
        prepared = self.prepare(algorithm, learner, jax.random.key(0), np.int32(0))
        memory = self.first_memories(algorithm, learner)
        acted = self.act(prepared, memory, None, obs, 0)
        if jax.tree.leaves(memory):
            self.act(prepared, acted.memory, (reward, flag), obs, 0)
            self.remember(prepared, acted.memory, (reward, flag))
        row = Rollout(obs, acted.action, reward, flag, flag, obs, acted.extras)

        def many(leaf: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((self._num_steps, *leaf.shape), leaf.dtype)

        return jax.tree.map(many, row)._replace(memory=memory)

    def act(
        self, prepared: Prepared, memory: Memory, last: Any, obs: Observation, row: Any
    ) -> Acted:
        """One action in every lane.

        ``last`` is (reward, ended) of the step before, where memory has not taken them in yet, and
        else None. ``row`` counts the rollout's steps: a number, or one for each lane.
        """
        row = self._counters[row] if isinstance(row, int) else row
        return self._act(prepared, memory, last, obs, row)

    def remember(self, prepared: Prepared, memory: Memory, last: Any) -> Memory:
        """Memory with the step before taken in."""
        return memory if last is None else self._remember(prepared, memory, last)

    def _prepare(self, algorithm: Any, learner: Any, root: Array, update: Array) -> Prepared:
        actor = algorithm.actor(learner)
        keys = lane_streams(root, Purpose.ACT, update, self._index)
        noise = jax.vmap(lambda key: algorithm.noise(actor, key, self._num_steps), out_axes=1)(keys)
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves((algorithm, actor))]
        small = [leaf.ravel() for leaf in leaves if _is_small(leaf)]
        packed = jnp.concatenate(small) if small else jnp.zeros(0)
        return Prepared(packed, [leaf for leaf in leaves if not _is_small(leaf)], noise)

    def _unpacked(self, prepared: Prepared) -> tuple[Any, Any]:
        """The algorithm and the actor."""
        large, start, leaves = iter(prepared.large), 0, []
        for shape in self._shapes:
            if _is_small(shape):
                leaves.append(prepared.packed[start : start + shape.size].reshape(shape.shape))
                start += shape.size
            else:
                leaves.append(next(large))
        return jax.tree.unflatten(self._tree, leaves)

    def _first_memories(self, algorithm: Any, learner: Any) -> Memory:
        return first_memories(algorithm, algorithm.actor(learner), len(self._index))

    def _act_program(
        self, prepared: Prepared, memory: Memory, last: Any, obs: Observation, row: Array
    ) -> Acted:
        algorithm, actor = self._unpacked(prepared)
        if last is not None:
            memory = self._remember_program(prepared, memory, last)
        noise = prepared.noise[row] if row.ndim == 0 else prepared.noise[row, self._index]
        action, extras, memory = jax.vmap(algorithm.act, in_axes=(None, 0, 0, 0))(
            actor, memory, obs, noise
        )
        taken = jax.vmap(lambda one: to_environment(self._space, one))(action)
        return Acted(action, None if taken is action else taken, extras, memory)

    def _remember_program(self, prepared: Prepared, memory: Memory, last: Any) -> Memory:
        algorithm, actor = self._unpacked(prepared)
        return jax.vmap(algorithm.after_step, in_axes=(None, 0, 0, 0))(actor, memory, *last)


def _is_small(leaf: Any) -> bool:
    return leaf.dtype == jnp.float32 and leaf.size <= MOST_PACKED
