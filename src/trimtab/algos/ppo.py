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
from jax import Array

from trimtab.algos.schedules import scheduled
from trimtab.algos.settings import PPOSettings
from trimtab.algos.sgd import Adam, AdamState, minibatch_epochs
from trimtab.errors import SettingError
from trimtab.nets.actor_critic import ActorCritic
from trimtab.nets.flat import Flat, joined
from trimtab.nets.heads import check_action_space, sampling_noise
from trimtab.ops.across import ALONE, Across
from trimtab.ops.returns import advantages_of_lanes
from trimtab.ops.rows import evaluate_where
from trimtab.ops.running import Running
from trimtab.spaces import Box, EnvSpec
from trimtab.types import Action, Memory, Metrics, Observation, Rollout


class Actor(NamedTuple):
    """The little that is needed to act."""

    network: ActorCritic
    observations: Running | None


class Learner(NamedTuple):
    """Everything that learning changes."""

    parameters: Flat
    optimiser: AdamState
    observations: Running | None  # statistics with which observations are normalised
    updates: Array


class Sample(NamedTuple):
    """One transition as the loss sees it."""

    obs: Observation  # normalised
    action: Action
    log_prob: Array  # of the action under the policy that acted
    advantage: Array
    target: Array  # for the critic


class Terms(NamedTuple):
    """The parts of one sample's loss, and what is worth watching beside them."""

    policy: Array
    value: Array
    entropy: Array
    approx_kl: Array
    clipped: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPO(PPOSettings):
    """See ``PPOSettings`` for the hyperparameters. Methods are for one lane or one sample."""

    total_updates: float = float("inf")  # the length of schedules; a training run sets it

    def init(self, key: Array, spec: EnvSpec) -> Learner:
        """A new learner for an environment."""
        check_action_space(spec.action, spec.id)
        if self.normalize_observations and not isinstance(spec.observation, Box):
            raise SettingError(
                f"normalize_observations has no effect on {spec.id}, whose observations are "
                f"{spec.observation}: leave it off."
            )
        network = ActorCritic.make(
            key, spec, self.hidden_sizes, self.activation, self.initial_log_std
        )
        parameters = Flat.of(network)
        normalised = self.normalize_observations
        shown = spec.observation
        statistics = Running.zeros(shown.shape) if normalised and isinstance(shown, Box) else None
        return Learner(parameters, self._adam().init(parameters), statistics, jnp.int32(0))

    def actor(self, learner: Learner) -> Actor:
        return Actor(learner.parameters.network(), learner.observations)

    def noise(self, actor: Actor, key: Array, num_steps: int) -> Array:
        """One lane's random numbers for ``num_steps`` actions."""
        return sampling_noise(actor.network.action_space, key, num_steps)

    def first_memory(self, actor: Actor) -> Memory:
        """Nothing is remembered."""
        return ()

    def act(
        self, actor: Actor, memory: Memory, obs: Observation, noise: Array
    ) -> tuple[Action, dict[str, Array], Memory]:
        """Sample an action for one lane."""
        policy = actor.network.policy(_normalised(actor.observations, obs))
        action = policy.sample(noise)
        return action, {"log_prob": policy.log_prob(action)}, memory

    def best_action(self, actor: Actor, memory: Memory, obs: Observation) -> tuple[Action, Memory]:
        """The policy's most likely action for one lane."""
        return actor.network.policy(_normalised(actor.observations, obs)).mode(), memory

    def after_step(self, actor: Actor, memory: Memory, reward: Array, ended: Array) -> Memory:
        """Nothing is remembered."""
        return memory

    def prepare(self, learner: Learner, rollout: Rollout) -> tuple[Sample, Array]:
        """Advantages and targets; leaves are [T, N, ...]. Also the critic's values."""
        network = learner.parameters.network()

        def value_of(obs: Array) -> Array:
            return jax.vmap(network.value)(_normalised(learner.observations, obs))

        steps, lanes = rollout.reward.shape
        rows = jax.tree.map(
            lambda leaf: leaf.reshape(steps * lanes, *leaf.shape[2:]), rollout._replace(memory=())
        )
        values = value_of(rows.obs).reshape(steps, lanes)
        # One step later in the same lane is the successor, unless the episode was truncated there.
        later = jnp.concatenate([values[1:], value_of(rollout.next_obs[-1])[None]])
        next_values = evaluate_where(
            rows.truncated & ~rows.terminated, value_of, rows.next_obs, later.reshape(-1)
        ).reshape(steps, lanes)
        advantages = advantages_of_lanes(
            rollout.reward,
            values,
            next_values,
            rollout.terminated,
            rollout.truncated,
            self.gamma,
            self.gae_lambda,
        )
        obs = _normalised(learner.observations, rollout.obs)
        log_prob = rollout.extras["log_prob"]
        return Sample(obs, rollout.action, log_prob, advantages, advantages + values), values

    def terms(self, network: ActorCritic, sample: Sample) -> Terms:
        """The parts of one sample's loss.

        ratio r = π(a|s) / π_old(a|s)
        policy  = −min(r A, clip(r, 1 − ε, 1 + ε) A)
        value   = ½ (V(s) − target)²
        KL(π_old, π) ≈ (r − 1) − log r          (Schulman's k3: unbiased, never negative)
        """
        policy = network.policy(sample.obs)
        log_ratio = policy.log_prob(sample.action) - sample.log_prob
        ratio = jnp.exp(log_ratio)
        clipped_ratio = jnp.clip(ratio, 1.0 - self.clip_range, 1.0 + self.clip_range)
        return Terms(
            policy=-jnp.minimum(ratio * sample.advantage, clipped_ratio * sample.advantage),
            value=0.5 * (network.value(sample.obs) - sample.target) ** 2,
            entropy=policy.entropy(),
            approx_kl=(ratio - 1.0) - log_ratio,
            clipped=(jnp.abs(ratio - 1.0) > self.clip_range).astype(jnp.float32),
        )

    def weighed(self, terms: Terms) -> Array:
        """policy + c_v value − c_e entropy"""
        return (
            terms.policy
            + self.value_coefficient * terms.value
            - self.entropy_coefficient * terms.entropy
        )

    def loss(self, network: ActorCritic, sample: Sample) -> Array:
        """One sample's loss; ``vmap(grad(loss))`` gives gradients per sample."""
        return self.weighed(self.terms(network, sample))

    def update(
        self, learner: Learner, rollout: Rollout, key: Array, across: Across = ALONE
    ) -> tuple[Learner, Metrics]:
        """Epochs of minibatch gradient steps on one rollout."""
        now = self.at(learner.updates)
        prepared, values = now.prepare(learner, rollout)
        samples = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), prepared)

        def normalised_advantages(minibatches: Sample) -> Sample:
            if not now.normalize_advantages:
                return minibatches
            advantage = minibatches.advantage
            centred = advantage - across.mean(advantage.mean(axis=1, keepdims=True))
            deviation = jnp.sqrt(across.mean((centred**2).mean(axis=1, keepdims=True)))
            return minibatches._replace(advantage=centred / (deviation + 1e-8))

        def gradient_step(state: Any, minibatch: Sample) -> tuple[Any, tuple[Terms, Array]]:
            parameters, optimiser = state
            gradient, terms = now.gradient(parameters, minibatch)
            parameters, optimiser, norm = now._adam().step(
                parameters, optimiser, across.mean(gradient)
            )
            return (parameters, optimiser), (terms, norm)

        (parameters, optimiser), (terms, norms) = minibatch_epochs(
            gradient_step,
            (learner.parameters, learner.optimiser),
            samples,
            jax.random.fold_in(key, across.index()),
            epochs=self.epochs,
            minibatches=self.minibatches,
            arrange=normalised_advantages,
        )
        statistics = learner.observations
        if statistics is not None:
            seen = rollout.obs.reshape(-1, *rollout.obs.shape[2:])
            statistics = statistics.merge(seen, across)
        means = across.mean(jax.tree.map(jnp.mean, terms))
        metrics = {
            "train/policy_loss": means.policy,
            "train/value_loss": means.value,
            "train/entropy": means.entropy,
            "train/approx_kl": means.approx_kl,
            "train/clip_fraction": means.clipped,
            "train/grad_norm": norms.mean(),
            "train/explained_variance": explained_variance(values, prepared.target, across),
            "train/learning_rate": jnp.float32(now.learning_rate),
        }
        return Learner(parameters, optimiser, statistics, learner.updates + 1), metrics

    def gradient(self, parameters: Flat, minibatch: Sample) -> tuple[Array, Terms]:
        """The flat gradient of a minibatch's mean loss, and the means of its terms."""

        def mean_loss(network: ActorCritic) -> tuple[Array, Terms]:
            terms = jax.vmap(self.terms, in_axes=(None, 0))(network, minibatch)
            means = jax.tree.map(jnp.mean, terms)
            return self.weighed(means), means

        # By array and then joined: differentiating through the flat vector itself would pad
        # and add a whole vector for each array of the network.
        gradient, means = jax.grad(mean_loss, has_aux=True)(parameters.network())
        return joined(gradient), means

    def at(self, updates: Array) -> "PPO":
        """This PPO with its scheduled numbers as they are after ``updates`` updates."""
        progress = updates.astype(jnp.float32) / self.total_updates
        rate = scheduled(self.learning_rate, self.learning_rate_schedule, progress)
        return dataclasses.replace(self, learning_rate=rate)

    def _adam(self) -> Adam:
        return Adam(
            self.learning_rate,
            self.adam_beta1,
            self.adam_beta2,
            self.adam_epsilon,
            self.max_grad_norm,
        )


def _normalised(statistics: Running | None, obs: Observation) -> Observation:
    return obs if statistics is None else statistics.normalize(obs)


def explained_variance(values: Array, targets: Array, across: Across = ALONE) -> Array:
    """1 − Var(target − value) / Var(target): 1 is a perfect critic, 0 is one that knows nothing."""
    errors = targets - values
    means = across.mean(jnp.stack([errors.mean(), targets.mean()]))
    squares = jnp.stack([((errors - means[0]) ** 2).mean(), ((targets - means[1]) ** 2).mean()])
    error_variance, variance = across.mean(squares)
    return jnp.where(variance > 0, 1.0 - error_variance / jnp.maximum(variance, 1e-12), 0.0)


# Floats are leaves of the pytree, which may be traced and mapped; all else gives shapes or code.
_FLOATS = [f.name for f in dataclasses.fields(PPO) if f.type is float]
_OTHERS = [f.name for f in dataclasses.fields(PPO) if f.type is not float]
jax.tree_util.register_dataclass(PPO, data_fields=_FLOATS, meta_fields=_OTHERS)
