"""Proximal policy optimisation (Schulman et al. 2017).

``PPO`` is a frozen dataclass of hyperparameters with pure methods; all that changes is in the
``Learner`` that ``update`` takes and returns. So one PPO object runs in a compiled loop, over host
environments and over workers, is differentiated per sample, and is mapped over seeds with ``vmap``.
Numbers that may vary without changing a shape are leaves of the pytree: they never recompile.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.algos import construction, diagnostics, onpolicy
from trimtab.algos.onpolicy import Learner, Sample
from trimtab.algos.optimisers import Adam
from trimtab.algos.sequences import gradient_of
from trimtab.algos.settings import PPOSettings
from trimtab.algos.sgd import epoch, mean_of_made, scan_until
from trimtab.nets.actor_critic import ActorCritic
from trimtab.nets.flat import Flat
from trimtab.ops.across import ALONE, Across
from trimtab.types import Metrics, Rollout

# How an adaptive learning rate moves: by this factor, and no further than so many times it.
RATE_FACTOR = 1.5
LARGEST_RATE_CHANGE = 100.0


class Terms(NamedTuple):
    """The parts of one sample's loss, and what is worth watching beside them."""

    policy: Array
    value: Array
    entropy: Array
    approx_kl: Array  # never negative
    log_ratio_kl: Array  # unbiased too, of higher variance, and of either sign
    clipped: Array
    smallest_ratio: Array
    largest_ratio: Array

    def mean(self) -> "Terms":
        """Over samples; of the extremes, the extremes."""
        extremes = self.smallest_ratio.min(), self.largest_ratio.max()
        averaged = jnp.stack(self[: -len(extremes)])  # one reduction is faster than six
        return Terms._make([*averaged.mean(axis=tuple(range(1, averaged.ndim))), *extremes])


def unstacked(figures: Array) -> tuple[Terms, Array]:
    """Terms and gradient norms of gradient steps, from rows [..., terms and norm]."""
    *terms, norm = jnp.moveaxis(figures, -1, 0)
    return Terms._make(terms), norm


@construction.numbers_are_leaves
@dataclasses.dataclass(frozen=True, kw_only=True)
class PPO(PPOSettings):
    """See ``PPOSettings`` for the hyperparameters. Methods are for one lane or one sample."""

    total_updates: float = float("inf")  # the length of schedules; a training run sets it

    init = construction.init
    actor = onpolicy.actor
    first_memory = onpolicy.first_memory
    noise = onpolicy.noise
    act = onpolicy.act
    best_action = onpolicy.best_action
    after_step = onpolicy.after_step
    at = construction.at
    loss = onpolicy.loss

    def optimiser_of(self, parameters: Flat) -> Adam:
        return construction.adam(self)

    def prepare(
        self, learner: Learner, rollout: Rollout, across: Across = ALONE
    ) -> tuple[Sample, Array]:
        """Advantages by GAE, and targets; leaves are [T, N, ...]. Also the critic's values."""
        samples, values = onpolicy.estimated(self, learner, rollout, self.gae_lambda)
        if self.value_clip_range is not None:
            samples = samples._replace(value=values)
        return samples, values

    def terms(self, network: ActorCritic, sample: Sample) -> Terms:
        """The parts of one sample's loss.

        ratio r = π(a|s) / π_old(a|s)
        policy  = −min(r A, clip(r, 1 − ε, 1 + ε) A)
                  and, with dual_clip c, −max(that minimum, c A) where A < 0
        value   = ½ (V(s) − target)²
                  and, with value_clip_range ε', ½ max of that and of the same for
                  V_old + clip(V(s) − V_old, −ε', ε')
        KL(π_old, π) ≈ (r − 1) − log r          (Schulman's k3: unbiased, never negative)
                     ≈ −log r                   (k1: unbiased)
        """
        policy = network.policy(sample.obs, sample.hidden)
        log_ratio = onpolicy.log_ratio(policy, sample)
        ratio = jnp.exp(log_ratio)
        clipped_ratio = jnp.clip(ratio, 1.0 - self.clip_range, 1.0 + self.clip_range)
        gain = jnp.minimum(ratio * sample.advantage, clipped_ratio * sample.advantage)
        if self.dual_clip is not None:
            bound = self.dual_clip * sample.advantage
            gain = jnp.where(sample.advantage < 0, jnp.maximum(gain, bound), gain)
        value = network.value(sample.obs, sample.hidden)
        value_loss = 0.5 * (value - sample.target) ** 2
        if self.value_clip_range is not None and sample.value is not None:
            limit = self.value_clip_range
            near = sample.value + jnp.clip(value - sample.value, -limit, limit)
            value_loss = jnp.maximum(value_loss, 0.5 * (near - sample.target) ** 2)
        return Terms(
            policy=-gain,
            value=value_loss,
            entropy=policy.entropy(),
            approx_kl=jnp.expm1(log_ratio) - log_ratio,  # r − 1 would cancel near 1
            log_ratio_kl=-log_ratio,
            clipped=(jnp.abs(ratio - 1.0) > self.clip_range).astype(jnp.float32),
            smallest_ratio=ratio,
            largest_ratio=ratio,
        )

    def weighed(self, terms: Terms) -> Array:
        """policy + c_v value − c_e entropy"""
        return (
            terms.policy
            + self.value_coefficient * terms.value
            - self.entropy_coefficient * terms.entropy
        )

    def gradient(self, parameters: Flat, minibatch: Sample) -> tuple[Array, Terms]:
        """The flat gradient of a minibatch's mean loss, and the means of its terms."""
        return gradient_of(self, parameters, minibatch, Terms.mean)

    def update(
        self, learner: Learner, rollout: Rollout, key: Array, across: Across = ALONE
    ) -> tuple[Learner, Metrics]:
        """Epochs of minibatch gradient steps on one rollout."""
        now = self.at(learner.updates)
        if learner.rate is not None:
            now = dataclasses.replace(now, learning_rate=now.learning_rate * learner.rate)
        optimiser = now.optimiser_of(learner.parameters)
        prepared, values = now.prepare(learner, rollout, across)

        def one_step(state: Any, minibatch: Sample) -> tuple[Any, Array]:
            parameters, moments = state
            gradient, terms = now.gradient(parameters, minibatch)
            parameters, moments, norm = optimiser.step(parameters, moments, across.mean(gradient))
            return (parameters, moments), jnp.stack([*terms, norm])  # one array leaves the loop

        once = onpolicy.samples_of(now, prepared, across)

        def one_epoch(state: Any, epoch_key: Array) -> tuple[Any, Array]:
            samples = once
            if now.recompute_advantages:
                newest = learner._replace(parameters=state[0])
                again, _ = now.prepare(newest, rollout, across)
                samples = onpolicy.samples_of(now, again, across)
            return epoch(
                one_step,
                state,
                samples,
                epoch_key,
                minibatches=now.minibatches,
                arrange=lambda shuffled: now._normalised(shuffled, across),
            )

        def went_far(figures: Array) -> Array:
            return across.mean(unstacked(figures)[0].approx_kl.mean()) > now.target_kl

        state = (learner.parameters, learner.optimiser)
        keys = jax.random.split(jax.random.fold_in(key, across.index()), now.epochs)
        if now.target_kl is None:
            state, figures = lax.scan(one_epoch, state, keys)
            made = None
        else:
            state, figures, made = scan_until(one_epoch, state, keys, went_far)
        terms, norms = unstacked(figures)
        learned = learner._replace(parameters=state[0], optimiser=state[1])
        if learner.rate is not None:
            last = -1 if made is None else made.sum() - 1
            last_kl = across.mean(terms.approx_kl[last].mean())
            learned = learned._replace(rate=adapted(learner.rate, last_kl, now.adaptive_kl))
        after = onpolicy.with_statistics(now, learned, rollout, prepared.target, across)
        return after, {
            **diagnostics.of_update(now, learner, learned, prepared, values, across),
            **diagnostics.of_gradients(now, norms, made),
            **now._watched(learner, figures, made, across),
        }

    def _watched(
        self, learner: Learner, figures: Array, made: Array | None, across: Across
    ) -> Metrics:
        """What the losses of an update came to; see ``unstacked`` for the figures."""
        means, _ = unstacked(across.mean(mean_of_made(figures, made)))
        terms, _ = unstacked(figures)
        ratios = terms.smallest_ratio, terms.largest_ratio
        if made is not None:  # ratios begin at 1, so 1 is never an extreme
            ratios = jax.tree.map(lambda leaf: jnp.where(made[:, None], leaf, 1.0), ratios)
        metrics = {
            "train/policy_loss": means.policy,
            "train/value_loss": means.value,
            **diagnostics.of_entropy(self, learner, means.entropy),
            "train/approx_kl": means.approx_kl,
            "train/log_ratio_kl": means.log_ratio_kl,
            "train/clip_fraction": means.clipped,
            "train/ratio_min": across.min(ratios[0].min()),
            "train/ratio_max": across.max(ratios[1].max()),
        }
        if made is not None:
            metrics["train/epochs"] = made.sum().astype(jnp.float32)
        if self.clip_range_schedule != "constant" or self.clip_range_warmup is not None:
            metrics["train/clip_range"] = jnp.float32(self.clip_range)
        return metrics

    def _normalised(self, minibatches: Sample, across: Across) -> Sample:
        """Minibatches [minibatches, size, ...] with advantages normalised within each."""
        if self.advantage_normalization != "minibatch":
            return minibatches
        axes = tuple(range(1, minibatches.advantage.ndim))
        return onpolicy.shifted_and_scaled(minibatches, axes, across)


def adapted(rate: Array, kl: Array, wanted: Array | float | None) -> Array:
    """An adaptive learning rate's multiple after an update with that KL divergence."""
    assert wanted is not None
    factor = jnp.where(kl > 2.0 * wanted, 1.0 / RATE_FACTOR, 1.0)
    factor = jnp.where(kl < 0.5 * wanted, RATE_FACTOR, factor)
    return (rate * factor).clip(1.0 / LARGEST_RATE_CHANGE, LARGEST_RATE_CHANGE)
