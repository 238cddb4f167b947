"""What using a rollout for several gradient steps does to the gradient: bias by source.

At the end of an update the policy π' is no longer the one, π, that collected the rollout. Four
gradients at π' are compared, all with the advantages of the critic before the update:

    on policy    of data that π' collected: what a new rollout would say
    reused       of new data of π, weighted with the ratio π'/π      − on policy = policy drift
    clipped      of the same with PPO's clipping                     − reused    = clipping
    own          of the very rollout that the update was made with   − clipped   = own data

The bias of a source is the mean of its difference d over updates u = 1 … U; its squared length is
estimated from pairs of different updates, (‖Σ d_u‖² − Σ ‖d_u‖²) / (U (U − 1)), without bias.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.algos.gradients import Gradient, head_loss
from trimtab.keys import Purpose, stream
from trimtab.lab.engine import Laboratory
from trimtab.lab.intervals import Estimate, jackknife
from trimtab.lab.plan import Split
from trimtab.types import Rollout

UPDATES = 20


class Gradients(NamedTuple):
    """Mean policy gradients at the end of each update, [U, P]; ``reused`` None without ratios."""

    on_policy: np.ndarray
    reused: np.ndarray | None
    clipped: np.ndarray
    own: np.ndarray


def measure_surrogate(
    laboratory: Laboratory,
    learner: Any,
    split: Split,
    updates: int = UPDATES,
    beat: Callable[[], None] = lambda: None,
) -> tuple[Gradients, list[Any]]:
    """The gradients, and the parameters at which they were taken; ``beat`` after each update."""
    algorithm = laboratory.at(learner, None)
    source, root = laboratory.source, stream(laboratory.root, Purpose.LAB, 8)
    actor = laboratory.gradient_of("actor", learner)
    clips = hasattr(algorithm, "clip_range")

    @jax.jit
    def moved_by(algorithm: Any, learner: Any, rollout: Rollout, key: Array) -> Any:
        return algorithm.update(learner, rollout, key)[0].parameters

    @jax.jit
    def gradient(algorithm: Any, learner: Any, parameters: Any, rollout: Rollout) -> Array:
        samples, _ = algorithm.prepare(learner, rollout)
        loss = Gradient(head_loss(algorithm, "actor"), actor.used)
        return loss.mean(parameters.network(), samples)

    side = source.side_by_side
    old = source.groups(
        algorithm, learner, stream(root, Purpose.LAB, 0), laboratory.request(split, side, updates)
    )
    rows: list[tuple[Any, ...]] = []
    places = []
    for number, rollout in enumerate(laboratory.rollouts(algorithm, learner, split, updates, 1)):
        key = stream(root, Purpose.SHUFFLE, number)
        parameters = moved_by(algorithm, learner, rollout, key)
        moved = learner._replace(parameters=parameters)
        fresh = source.groups(
            algorithm,
            moved,
            stream(root, Purpose.LAB, 1, number),
            laboratory.request(split, side, 1),
        )
        on_policy, same = next(iter(fresh))[0], next(old)[0]
        row = (
            gradient(algorithm, learner, parameters, on_policy),
            gradient(without_clipping(algorithm), learner, parameters, same) if clips else None,
            gradient(algorithm, learner, parameters, same),
            gradient(algorithm, learner, parameters, rollout),
        )
        rows.append(jax.device_get(row))
        places.append(parameters)
        beat()
    columns = [
        None if column[0] is None else np.stack(column).astype(np.float64)
        for column in zip(*rows, strict=True)
    ]
    return Gradients(*columns), places  # pyright: ignore[reportArgumentType]


def without_clipping(algorithm: Any) -> Any:
    """The algorithm with ratios that are never clipped."""
    changes: dict[str, Any] = {"clip_range": jnp.float32(jnp.inf)}
    if algorithm.dual_clip is not None:
        changes["dual_clip"] = None
    return dataclasses.replace(algorithm, **changes)


def sources(found: Gradients) -> dict[str, np.ndarray]:
    """The difference that each source makes, [U, P]."""
    if found.reused is None:
        parts = {"policy drift": found.clipped - found.on_policy}
    else:
        parts = {
            "policy drift": found.reused - found.on_policy,
            "clipping": found.clipped - found.reused,
        }
    return {**parts, "own data": found.own - found.clipped}


def squared_mean(vectors: np.ndarray) -> float:
    """‖E v‖² of independent vectors [U, P], without bias."""
    count, total = len(vectors), vectors.sum(axis=0)
    return float((total @ total - (vectors**2).sum()) / (count * (count - 1)))


def relative_squares(found: Gradients) -> Mapping[str, Estimate]:
    """|bias|² / |on-policy gradient|² of each source, and of all together.

    Not known where the updates cannot tell the on-policy gradient itself from nothing.
    """
    parts = {**sources(found), "total": found.own - found.on_policy}
    updates = range(len(found.own))

    def left_out(vectors: np.ndarray) -> np.ndarray:
        return np.array([squared_mean(np.delete(vectors, one, axis=0)) for one in updates])

    below, below_left_out = squared_mean(found.on_policy), left_out(found.on_policy)
    if not jackknife(below, below_left_out).low > 0:
        return dict.fromkeys(parts, Estimate(math.nan, math.nan, math.nan))
    return {
        name: jackknife(squared_mean(vectors) / below, left_out(vectors) / below_left_out)
        for name, vectors in parts.items()
    }
