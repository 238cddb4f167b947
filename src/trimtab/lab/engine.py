"""The measuring engine: many batches' gradients, reduced as they are made.

A group of batches is collected side by side, and a compiled program reduces them one after another
to their moments. λ and the learner are arguments, so that another checkpoint, or another λ, does
not compile again.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from trimtab.algos.gradients import Gradient, head_loss
from trimtab.keys import Purpose, stream
from trimtab.lab.batches import Batches, Request
from trimtab.lab.collecting import Facts, into_batches
from trimtab.lab.directions import LaneCosines, lane_cosines
from trimtab.lab.estimators import Moments
from trimtab.lab.moments import BatchMoments, batch_moments, sum_of_steps
from trimtab.lab.plan import Split, Start, Storage, grouping, storage_for
from trimtab.lab.sketch import Sketch
from trimtab.types import Rollout

# Batch 0's gradients per sample are compared with the means of this many batches.
FIRST_BATCHES = 20


class Kept(NamedTuple):
    """Gradients per sample of a batch: [T, N, P], or sketches of them."""

    gradients: Array
    squares: Array | None  # [T, N] squared lengths of gradients of which sketches are kept


class HeadGroup(NamedTuple):
    """What a group of batches leaves behind for one head; leaves are [batches, ...]."""

    moments: BatchMoments  # step_means: summed over the group, [T, P]
    means: Array
    cosines: LaneCosines


@dataclasses.dataclass(frozen=True)
class HeadMeasurement:
    """All batches of one head."""

    moments: Moments
    means: np.ndarray  # [M, P], or sketches of them
    cosines: LaneCosines  # means [M], histograms summed over batches
    storage: Storage
    parameters: int


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One split at one λ: every head, and the facts about its batches."""

    split: Split
    heads: dict[str, HeadMeasurement]
    reward_range: tuple[float, float]
    terminations: int
    episodes: float
    return_mean: float
    first_batch: dict[str, np.ndarray]  # [B, P] gradients per sample of batch 0


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What holds for every measurement of a laboratory."""

    heads: tuple[str, ...]
    batches: int
    start: Start
    warm_up: int
    memory: float  # bytes
    seed: int = 0


@final
class Laboratory:
    """Measures the gradients of one algorithm in one environment."""

    def __init__(self, source: Batches, algorithm: Any, conditions: Conditions):
        self.source = source
        self.algorithm = algorithm
        self.conditions = conditions
        self._sketch_key = stream(jax.random.key(conditions.seed), Purpose.LAB, 1)

    @property
    def root(self) -> Array:
        return jax.random.key(self.conditions.seed)

    def measure(
        self,
        learner: Any,
        split: Split,
        trace: float | None,
        watch: Callable[[int, int], None] = lambda done, groups: None,
    ) -> Measurement:
        """Measure ``batches`` batches; ``watch`` is told of each group that is done."""
        algorithm = self.at(learner, trace)
        groups, size = grouping(self.conditions.batches)
        parts: list[dict[str, HeadGroup]] = []
        facts: list[Facts] = []
        first: dict[str, np.ndarray] = {}
        for group, (rollout, seen) in enumerate(
            self.source.groups(algorithm, learner, self.root, self.request(split, size, groups))
        ):
            reduced = self.reduced(algorithm, learner, split, rollout, group)
            if group == 0:
                first = jax.device_get(self._first_batch(split)(algorithm, learner, rollout))
            parts.append(jax.device_get(reduced))
            facts.append(jax.device_get(seen))
            watch(group + 1, groups)
        episodes = float(sum(seen.episodes for seen in facts))
        returns = float(sum(seen.return_sum for seen in facts))
        return Measurement(
            split,
            {head: self._joined(head, split, learner, parts) for head in self.conditions.heads},
            (
                float(min(seen.lowest_reward for seen in facts)),
                float(max(seen.highest_reward for seen in facts)),
            ),
            int(sum(seen.terminations for seen in facts)),
            episodes,
            returns / episodes if episodes else float("nan"),
            first,
        )

    def reduced(
        self, algorithm: Any, learner: Any, split: Split, rollout: Rollout, group: int
    ) -> dict[str, HeadGroup]:
        """What is kept of a group of batches that are side by side in a rollout."""
        batches = rollout.reward.shape[1] // split.lanes
        keys = jax.random.split(stream(self.root, Purpose.LAB, 2, group), batches)
        return self._reduce(split)(algorithm, learner, rollout, keys)

    def request(self, split: Split, batches: int, groups: int) -> Request:
        """Batches under the laboratory's conditions."""
        return Request(split, batches, groups, self.conditions.start, self.conditions.warm_up)

    def rollouts(
        self, algorithm: Any, learner: Any, split: Split, count: int, purpose: int
    ) -> Iterator[Rollout]:
        """Single batches, [T, N, ...]: others than those of ``measure`` and of other purposes."""
        root = stream(self.root, Purpose.LAB, 6, purpose)
        request = self.request(split, 1, count)
        for rollout, _ in self.source.groups(algorithm, learner, root, request):
            yield rollout

    def at(self, learner: Any, trace: float | None) -> Any:
        """The algorithm with its schedules where the learner stands, and with λ."""
        now = self.algorithm.at(learner.updates)
        if trace is not None:
            now = dataclasses.replace(now, gae_lambda=np.float32(trace))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), now)

    def gradients(self, network: Any, sample: Any) -> dict[str, Gradient]:
        """The gradient function of each head."""
        return {
            head: Gradient.of(head_loss(self.algorithm, head), network, sample)
            for head in self.conditions.heads
        }

    def projected(self, vectors: Array, storage: Storage) -> Array:
        """The vectors as they are kept: whole, or sketched."""
        if not storage.sketch:
            return vectors
        return Sketch(self._sketch_key, storage.sketch)(vectors)

    def storage(self, split: Split, parameters: int) -> Storage:
        groups, _ = grouping(self.conditions.batches)
        memory = self.conditions.memory / len(self.conditions.heads)
        return storage_for(split, parameters, groups, memory)

    @functools.cache  # noqa: B019 (a laboratory lives as long as its programs are wanted)
    def _reduce(self, split: Split) -> Any:
        """The jitted ``(algorithm, learner, rollout, keys) -> heads`` of a group of batches."""

        def program(
            algorithm: Any, learner: Any, rollout: Rollout, keys: Array
        ) -> dict[str, HeadGroup]:
            samples, _ = algorithm.prepare(learner, rollout)
            network = learner.parameters.network()
            # Accelerators multiply with fewer digits unless they are told not to.
            with jax.default_matmul_precision("highest"):
                return self._reduced(algorithm, network, into_batches(samples, len(keys)), keys)

        return jax.jit(program)

    @functools.cache  # noqa: B019
    def _first_batch(self, split: Split) -> Any:
        """A jitted function of the first batch's gradients per sample."""
        _, size = grouping(self.conditions.batches)

        def program(algorithm: Any, learner: Any, rollout: Rollout) -> dict[str, Array]:
            samples, _ = algorithm.prepare(learner, rollout)
            network = learner.parameters.network()
            first = jax.tree.map(lambda leaf: leaf[0], into_batches(samples, size))
            found = self._gradients_of(algorithm, network, first)
            return {head: one.gradients.reshape(split.samples, -1) for head, one in found.items()}

        return jax.jit(program)

    def _reduced(
        self, algorithm: Any, network: Any, samples: Any, keys: Array
    ) -> dict[str, HeadGroup]:
        """Each batch's moments, one batch after another; step means are added up."""

        def one_batch(sums: dict[str, Array], batch: Any) -> tuple[dict[str, Array], Any]:
            rows, key = batch
            kept = {}
            for head, (gradients, squares) in self._gradients_of(algorithm, network, rows).items():
                moments = batch_moments(gradients, squares)
                sums = {**sums, head: sums[head] + moments.step_means}
                mean = sum_of_steps(moments.step_means) / jnp.float32(len(moments.step_means))
                slim = moments._replace(step_means=jnp.zeros(0))
                kept[head] = HeadGroup(slim, mean, lane_cosines(gradients, key))
            return sums, kept

        first = jax.tree.map(lambda leaf: leaf[0], samples)
        shapes = jax.eval_shape(lambda rows: self._gradients_of(algorithm, network, rows), first)
        zeros = {
            head: jnp.zeros((one.gradients.shape[0], one.gradients.shape[2]))
            for head, one in shapes.items()
        }
        sums, kept = lax.scan(one_batch, zeros, (samples, keys))
        return {
            head: group._replace(moments=group.moments._replace(step_means=sums[head]))
            for head, group in kept.items()
        }

    def _gradients_of(self, algorithm: Any, network: Any, samples: Any) -> dict[str, Kept]:
        """Each head's gradients per sample of samples [T, N, ...], as they are kept."""
        steps, lanes = jax.tree.leaves(samples)[0].shape[:2]
        split = Split(lanes, steps)
        first = jax.tree.map(lambda leaf: leaf[0, 0], samples)
        found = {}
        for head, (_, used) in self.gradients(network, first).items():
            gradient = Gradient(head_loss(algorithm, head), used)
            storage = self.storage(split, gradient.size(network))
            if not storage.sketch:
                found[head] = Kept(gradient.per_sample(network, samples), None)
                continue

            def sketched(rows: Any, gradient: Gradient = gradient, s: Storage = storage) -> Kept:
                alone = jax.tree.map(lambda leaf: leaf[:, None], rows)
                each = gradient.per_sample(network, alone)[:, 0]
                return Kept(self.projected(each, s), (each**2).sum(axis=1))

            chunks = jax.tree.map(
                lambda leaf, size=storage.chunk: leaf.reshape(-1, size, *leaf.shape[2:]), samples
            )
            kept = lax.map(sketched, chunks)
            found[head] = jax.tree.map(
                lambda leaf: leaf.reshape(steps, lanes, *leaf.shape[2:]), kept
            )
        return found

    def _joined(
        self, head: str, split: Split, learner: Any, parts: list[dict[str, HeadGroup]]
    ) -> HeadMeasurement:
        groups = [part[head] for part in parts]
        cosines = [group.cosines for group in groups]
        parameters = self.parameters(head, learner)
        return HeadMeasurement(
            Moments.joined(split.lanes, [group.moments for group in groups]),
            np.concatenate([group.means for group in groups]),
            LaneCosines(
                np.concatenate([one.mean for one in cosines]),
                np.concatenate([one.null_mean for one in cosines]),
                np.sum([one.histogram for one in cosines], axis=(0, 1)),
                np.sum([one.null_histogram for one in cosines], axis=(0, 1)),
            ),
            self.storage(split, parameters),
            parameters,
        )

    def parameters(self, head: str, learner: Any) -> int:
        """The number of parameters that a head's gradient has."""
        return self.gradient_functions(learner)[head].size(learner.parameters.network())

    def gradient_of(self, head: str, learner: Any) -> Gradient:
        """The gradient of one head, be it one that is measured or not."""
        network = learner.parameters.network()
        return Gradient.of(head_loss(self.algorithm, head), network, self._sample_shape(learner))

    def gradient_functions(self, learner: Any) -> dict[str, Gradient]:
        """The gradient of each head that is measured."""
        return {head: self.gradient_of(head, learner) for head in self.conditions.heads}

    def _sample_shape(self, learner: Any) -> Any:
        """One sample of a rollout of one step, as shapes."""

        def sample_of(algorithm: Any, learner: Any, rollout: Rollout) -> Any:
            samples, _ = algorithm.prepare(learner, rollout)
            return jax.tree.map(lambda leaf: leaf[0, 0], samples)

        algorithm = self.at(learner, None)
        rollout = self.source.shapes(algorithm, learner)
        return jax.eval_shape(sample_of, algorithm, learner, rollout)
