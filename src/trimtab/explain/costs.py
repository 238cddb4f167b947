"""What a run costs: memory and floating-point operations, by tracing and without compiling."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from trimtab.collect.whole import collects_whole
from trimtab.ops.across import ALONE
from trimtab.spaces import EnvSpec, zeros
from trimtab.training.memory import ROLLOUT_COPIES, available_bytes, tree_bytes
from trimtab.types import Rollout

MOST_TRACED = 2**30  # transitions that int32 can number


@dataclasses.dataclass(frozen=True)
class Costs:
    """Bytes and operations. A rollout is held several times while it is learned from."""

    parameters: int
    learner_bytes: int  # parameters, optimiser, statistics
    rollout_bytes: int
    flops_per_step: float  # of matrix products and convolutions, for acting and learning
    free_bytes: int | None  # of this machine's memory; None: unknown
    replay_bytes: int = 0  # algorithms that learn from rollouts keep none

    @property
    def needed_bytes(self) -> int:
        """With the copies of a rollout that learning makes."""
        return self.learner_bytes + ROLLOUT_COPIES * self.rollout_bytes + self.replay_bytes

    @staticmethod
    def of(algorithm: Any, spec: EnvSpec, num_envs: int, num_steps: int) -> "Costs":
        """Of an algorithm on an environment with N lanes of T steps; what it costs is traced."""
        key = jax.eval_shape(lambda: jax.random.key(0))
        # The algorithm's numbers are traced too, as in a run.
        learner = jax.eval_shape(lambda a, key: a.init(key, spec), algorithm, key)
        obs = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, zeros(spec.observation)))

        def acted(algorithm: Any, learner: Any, key: Any, obs: Any) -> Any:
            actor = algorithm.actor(learner)
            memory = algorithm.first_memory(actor)
            noise = algorithm.noise(actor, key, 1)[0]
            return algorithm.act(actor, memory, obs, noise)

        action, extras, memory = jax.eval_shape(acted, algorithm, learner, key, obs)

        # Whole episodes take more rows than steps, and all rows are computed with.
        spare = spec.max_episode_steps or 0 if collects_whole(algorithm) else 0

        def rollout_of(lanes: int, steps: int) -> Rollout:
            return _rollout_shape(spec, action, extras, memory, lanes, steps + spare)

        lanes, steps = num_envs, num_steps
        if lanes * steps > MOST_TRACED:  # the work of a step is the same in a smaller one
            lanes, steps = algorithm.minibatches, min(steps, 1024)
        learning = jax.make_jaxpr(
            lambda a, learner, rollout, key: a.update(learner, rollout, key, ALONE)
        )(algorithm, learner, rollout_of(lanes, steps), key)
        acting = jax.make_jaxpr(acted)(algorithm, learner, key, obs)
        return Costs(
            parameters=sum(math.prod(shape) for shape in learner.parameters.shapes().values()),
            learner_bytes=tree_bytes(learner),
            rollout_bytes=tree_bytes(rollout_of(num_envs, num_steps)),
            flops_per_step=flops(acting.jaxpr) + flops(learning.jaxpr) / (lanes * steps),
            free_bytes=available_bytes(),
        )


def _rollout_shape(
    spec: EnvSpec, action: Any, extras: Any, memory: Any, num_envs: int, num_steps: int
) -> Rollout:
    def rows(tree: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((num_steps, num_envs, *leaf.shape), leaf.dtype), tree
        )

    def lanes(tree: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((num_envs, *leaf.shape), leaf.dtype), tree
        )

    number, flag = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), bool)
    obs = zeros(spec.observation)
    seen = rows(obs)
    return Rollout(
        seen, rows(action), rows(number), rows(flag), rows(flag), seen, rows(extras), lanes(memory)
    )


def flops(jaxpr: Any) -> float:
    """Multiplications and additions of the matrix products and convolutions of a traced program.

    A loop counts as often as it runs, and of a condition the dearest branch. A loop of unknown
    length, as over the few transitions whose episode was truncated, does not count.
    """
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: Any) -> float:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        inner = math.prod(left[axis] for axis in contracted)
        return 2.0 * math.prod(equation.outvars[0].aval.shape) * inner
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        outputs = kernel[params["dimension_numbers"].rhs_spec[0]]
        return 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(kernel) / outputs
    if name == "while":
        return 0.0
    if name == "cond":
        return max(flops(branch.jaxpr) for branch in params["branches"])
    times = params["length"] if name == "scan" else 1
    return times * sum(flops(inner) for inner in _inner(params))


def _inner(params: dict[str, Any]) -> list[Any]:
    """The programs inside an equation."""
    found = [getattr(value, "jaxpr", value) for value in params.values()]
    return [value for value in found if hasattr(value, "eqns")]
