"""A policy and a value function, side by side."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.nets.heads import Distribution, distribution, num_outputs
from trimtab.nets.module import module, static
from trimtab.nets.networks import MLP, Dense, features, num_features
from trimtab.ops.running import Running
from trimtab.spaces import Box, EnvSpec, Space


@module
class ActorCritic:
    """Two separate MLPs over the same features; methods take one (normalised) observation."""

    actor: MLP
    critic: MLP | None  # None: nothing is learned of values, and they are 0
    log_std: Array | None  # of continuous actions; does not depend on the observation
    observation_space: Space = static()
    action_space: Space = static()

    @staticmethod
    def make(
        key: Array,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        activation: str,
        initial_log_std: Array | float,
        *,
        with_critic: bool = True,
    ) -> "ActorCritic":
        """Last layers start small: the first policy is near uniform, or near its mean."""
        actor_key, critic_key = jax.random.split(key)
        inputs = num_features(spec.observation)
        actor_sizes = (inputs, *hidden_sizes, num_outputs(spec.action))
        critic_sizes = (inputs, *hidden_sizes, 1)
        box = spec.action if isinstance(spec.action, Box) else None
        return ActorCritic(
            MLP.make(actor_key, actor_sizes, activation, last_gain=0.01),
            MLP.make(critic_key, critic_sizes, activation, last_gain=1.0) if with_critic else None,
            jnp.full(box.shape, initial_log_std, jnp.float32) if box else None,
            spec.observation,
            spec.action,
        )

    def policy(self, obs: Array) -> Distribution:
        outputs = self.actor(features(self.observation_space, obs))
        return distribution(self.action_space, outputs, self.log_std)

    def value(self, obs: Array) -> Array:
        if self.critic is None:
            return jnp.zeros(())
        return self.critic(features(self.observation_space, obs))[0]

    def rescaled(self, old: Running, new: Running) -> "ActorCritic":
        """With a critic that means the same under ``new`` statistics as it did under ``old``.

        PopArt (van Hasselt et al. 2016): with σ v + μ = σ' v' + μ' for v = w·x + b,
            w' = w σ / σ',    b' = (σ b + μ − μ') / σ'
        """
        assert self.critic is not None
        *hidden, last = self.critic.layers
        ratio = old.deviation / new.deviation
        moved = Dense(last.weight * ratio, new.standardised(old.restored(last.bias)))
        critic = dataclasses.replace(self.critic, layers=(*hidden, moved))
        return dataclasses.replace(self, critic=critic)
