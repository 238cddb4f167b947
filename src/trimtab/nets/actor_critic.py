"""A policy and a value function, side by side."""

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.nets.heads import Distribution, distribution, num_outputs
from trimtab.nets.module import module, static
from trimtab.nets.networks import MLP, features, num_features
from trimtab.spaces import Box, EnvSpec, Space


@module
class ActorCritic:
    """Two separate MLPs over the same features; methods take one (normalised) observation."""

    actor: MLP
    critic: MLP
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
    ) -> "ActorCritic":
        """Last layers start small: the first policy is near uniform, or near its mean."""
        actor_key, critic_key = jax.random.split(key)
        inputs = num_features(spec.observation)
        actor_sizes = (inputs, *hidden_sizes, num_outputs(spec.action))
        critic_sizes = (inputs, *hidden_sizes, 1)
        box = spec.action if isinstance(spec.action, Box) else None
        return ActorCritic(
            MLP.make(actor_key, actor_sizes, activation, last_gain=0.01),
            MLP.make(critic_key, critic_sizes, activation, last_gain=1.0),
            jnp.full(box.shape, initial_log_std, jnp.float32) if box else None,
            spec.observation,
            spec.action,
        )

    def policy(self, obs: Array) -> Distribution:
        outputs = self.actor(features(self.observation_space, obs))
        return distribution(self.action_space, outputs, self.log_std)

    def value(self, obs: Array) -> Array:
        return self.critic(features(self.observation_space, obs))[0]
