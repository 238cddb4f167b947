"""A reference gradient where none is exact: long rollouts with λ = 1, and its own error."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from trimtab.keys import Purpose, stream
from trimtab.lab.batches import Request
from trimtab.lab.distance import Truth
from trimtab.lab.engine import Laboratory
from trimtab.lab.plan import Split, Storage
from trimtab.types import Rollout

LANES = 128
KEPT_STEPS = 32
ROWS = 20  # means of equally many batches: what intervals leave out one of
MOST_STEPS = 1000
# What lies beyond the horizon counts for this much of what a critic may be wrong by.
NEGLIGIBLE = 0.01


@dataclasses.dataclass(frozen=True)
class Reference:
    """The mean gradient of long batches, and how many transitions are in them."""

    truth: Truth
    transitions: int
    horizon: int


def horizon_of(discount: float) -> int:
    """Steps after which γ^k is negligible, at most MOST_STEPS."""
    if discount >= 1:
        return MOST_STEPS
    if discount <= 0:
        return 1
    return min(MOST_STEPS, math.ceil(math.log(NEGLIGIBLE) / math.log(discount)))


def measure_reference(
    laboratory: Laboratory, learner: Any, discount: float, storage: dict[str, Storage]
) -> dict[str, Reference]:
    """The reference of each head, kept as ``storage`` keeps gradients.

    Lanes start at stationary moments; each takes some steps whose gradients count, and then as
    many as a discounted return is long, so that λ = 1 has no need of the critic.
    """
    horizon = horizon_of(discount)
    split = Split(LANES, KEPT_STEPS + horizon)
    has_trace = hasattr(laboratory.algorithm, "gae_lambda")
    algorithm = laboratory.at(learner, 1.0 if has_trace else None)
    gradients = laboratory.gradient_functions(learner)
    batches = laboratory.source.reference_batches
    request = Request(split, 1, batches, "stationary", laboratory.conditions.warm_up)
    root = stream(laboratory.root, Purpose.LAB, 4)

    @jax.jit
    def of_batch(algorithm: Any, learner: Any, rollout: Rollout) -> dict[str, jax.Array]:
        samples, _ = algorithm.prepare(learner, rollout)
        kept = jax.tree.map(lambda leaf: leaf[:KEPT_STEPS], samples)
        network = learner.parameters.network()
        return {
            head: laboratory.projected(gradient.mean(network, kept), storage[head])
            for head, gradient in gradients.items()
        }

    found = [
        jax.device_get(of_batch(algorithm, learner, rollout))
        for rollout, _ in laboratory.source.groups(algorithm, learner, root, request)
    ]
    references = {}
    for head in gradients:
        means = np.stack([one[head] for one in found]).astype(np.float64)
        rows = means.reshape(ROWS, batches // ROWS, -1).mean(axis=1)
        transitions = batches * LANES * KEPT_STEPS
        references[head] = Reference(Truth.measured(rows), transitions, horizon)
    return references
