"""The measuring engine: many batches' gradients, reduced as they are made.

One compiled program collects a group of batches side by side and reduces them one after another to
their moments; it is called once for each group. λ and the learner are arguments, so that another
checkpoint, or another λ, does not compile again.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from trimtab.algos.gradients import Gradient, head_loss
from trimtab.keys import Purpose, stream
from trimtab.lab.collecting import Facts, collect_group, into_batches
from trimtab.lab.directions import LaneCosines, lane_cosines
from trimtab.lab.estimators import Moments
from trimtab.lab.moments import BatchMoments, batch_moments
from trimtab.lab.plan import Split, Start, Storage, grouping, storage_for
from trimtab.lab.sketch import Sketch
from trimtab.types import JaxEnv

# Batch 0's gradients per sample are compared with the means of this many batches.
FIRST_BATCHES = 20


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

    def __init__(self, env: JaxEnv, algorithm: Any, conditions: Conditions):
        self.env = env
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
        groups, _ = grouping(self.conditions.batches)
        program = self.program(split)
        parts: list[dict[str, HeadGroup]] = []
        facts: list[Facts] = []
        for group in range(groups):
            results, seen = jax.device_get(program(algorithm, learner, self.root, jnp.int32(group)))
            parts.append(results)
            facts.append(seen)
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
            episodes,
            returns / episodes if episodes else float("nan"),
            jax.device_get(self._first_batch(split)(algorithm, learner, self.root)),
        )

    def batch(self, algorithm: Any, learner: Any, split: Split, number: Array) -> Any:
        """The samples of one batch, [T, N, ...]: others than those of ``measure``."""
        key = stream(self.root, Purpose.LAB, 6)
        samples, _ = self._samples(algorithm, learner, key, split, 1, number)
        return jax.tree.map(lambda leaf: leaf[0], samples)

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
    def program(self, split: Split) -> Any:
        """The jitted ``program(algorithm, learner, root, group) -> (heads, facts)``."""
        _, size = grouping(self.conditions.batches)

        def program(
            algorithm: Any, learner: Any, root: Array, group: Array
        ) -> tuple[dict[str, HeadGroup], Facts]:
            samples, facts = self._samples(algorithm, learner, root, split, size, group)
            key = stream(root, Purpose.LAB, 2, group)
            network = learner.parameters.network()
            results = self._reduced(algorithm, network, samples, jax.random.split(key, size))
            return results, facts

        return jax.jit(program)

    @functools.cache  # noqa: B019
    def _first_batch(self, split: Split) -> Any:
        """A jitted function of batch 0's gradients per sample: it is made and measured again."""
        _, size = grouping(self.conditions.batches)

        def program(algorithm: Any, learner: Any, root: Array) -> dict[str, Array]:
            samples, _ = self._samples(algorithm, learner, root, split, size, jnp.int32(0))
            network = learner.parameters.network()
            first = jax.tree.map(lambda leaf: leaf[0], samples)
            found = self._gradients_of(algorithm, network, first)
            return {head: rows.reshape(split.samples, -1) for head, rows in found.items()}

        return jax.jit(program)

    def _samples(
        self,
        algorithm: Any,
        learner: Any,
        root: Array,
        split: Split,
        size: int,
        group: Array,
    ) -> tuple[Any, Facts]:
        conditions = self.conditions
        group_root = stream(root, Purpose.LAB, 3, group)
        rollout, facts = collect_group(
            algorithm,
            self.env,
            learner,
            group_root,
            split,
            size,
            conditions.start,
            conditions.warm_up,
        )
        samples, _ = algorithm.prepare(learner, rollout)
        return into_batches(samples, size), facts

    def _reduced(
        self, algorithm: Any, network: Any, samples: Any, keys: Array
    ) -> dict[str, HeadGroup]:
        """Each batch's moments, one batch after another; step means are added up."""

        def one_batch(sums: dict[str, Array], batch: Any) -> tuple[dict[str, Array], Any]:
            rows, key = batch
            kept = {}
            for head, gradients in self._gradients_of(algorithm, network, rows).items():
                moments = batch_moments(gradients)
                sums = {**sums, head: sums[head] + moments.step_means}
                mean = moments.step_means.mean(axis=0)
                slim = moments._replace(step_means=jnp.zeros(0))
                kept[head] = HeadGroup(slim, mean, lane_cosines(gradients, key))
            return sums, kept

        first = jax.tree.map(lambda leaf: leaf[0], samples)
        shapes = jax.eval_shape(lambda rows: self._gradients_of(algorithm, network, rows), first)
        zeros = {head: jnp.zeros((one.shape[0], one.shape[2])) for head, one in shapes.items()}
        sums, kept = lax.scan(one_batch, zeros, (samples, keys))
        return {
            head: group._replace(moments=group.moments._replace(step_means=sums[head]))
            for head, group in kept.items()
        }

    def _gradients_of(self, algorithm: Any, network: Any, samples: Any) -> dict[str, Array]:
        """Each head's gradients per sample, [T, N, P] or sketched, of samples [T, N, ...]."""
        steps, lanes = jax.tree.leaves(samples)[0].shape[:2]
        split = Split(lanes, steps)
        first = jax.tree.map(lambda leaf: leaf[0, 0], samples)
        found = {}
        for head, (_, used) in self.gradients(network, first).items():
            gradient = Gradient(head_loss(algorithm, head), used)
            storage = self.storage(split, gradient.size(network))
            if not storage.sketch:
                found[head] = gradient.per_sample(network, samples)
                continue

            def sketched(rows: Any, gradient: Gradient = gradient, s: Storage = storage) -> Array:
                alone = jax.tree.map(lambda leaf: leaf[:, None], rows)
                return self.projected(gradient.per_sample(network, alone)[:, 0], s)

            chunks = jax.tree.map(
                lambda leaf, size=storage.chunk: leaf.reshape(-1, size, *leaf.shape[2:]), samples
            )
            found[head] = lax.map(sketched, chunks).reshape(steps, lanes, storage.sketch)
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

    def gradient_functions(self, learner: Any) -> dict[str, Gradient]:
        """Each head's gradient, traced with one sample of a rollout of one step."""

        def sample_of(learner: Any) -> Any:
            samples, _ = self._samples(
                self.algorithm, learner, self.root, Split(1, 1), 1, jnp.int32(0)
            )
            return jax.tree.map(lambda leaf: leaf[0, 0, 0], samples)

        return self.gradients(learner.parameters.network(), jax.eval_shape(sample_of, learner))
