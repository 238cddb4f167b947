"""A policy and a value function, side by side."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.nets.encoder import Encoder
from trimtab.nets.heads import (
    LOG_STD_RANGE,
    Distribution,
    continuous_distribution,
    discrete_distribution,
    num_outputs,
)
from trimtab.nets.module import module, static
from trimtab.nets.networks import ACTIVATIONS, GRU, HIDDEN_GAIN, MLP, Dense
from trimtab.ops.running import Running
from trimtab.spaces import ACTION_MASK, Box, Dict, EnvSpec, Space, mask_space, without_mask


@dataclasses.dataclass(frozen=True)
class Design:
    """How an actor and a critic are built."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    shared: bool = False  # one trunk of hidden layers for both
    gru_units: int | None = None
    hidden_gain: Array | float = HIDDEN_GAIN
    policy_gain: Array | float = 0.01
    value_gain: Array | float = 1.0
    initial_log_std: Array | float = 0.0
    state_dependent_std: bool = False
    squashed: bool = False
    actor_keys: tuple[str, ...] = ()  # of a Dict observation; none: all of them
    critic_keys: tuple[str, ...] = ()
    critic: bool = True


@module
class ActorCritic:
    """Two heads over one observation; methods take one that is normalised.

    Separate (the usual form): each has an encoder and an MLP of its own. Shared: one encoder and
    one trunk, and a layer for each on top. A GRU stands behind the encoder (and the trunk), and
    serves both.
    """

    actor: MLP
    critic: MLP | None  # None: nothing is learned of values, and they are 0
    log_std: Array | None  # of continuous actions; None where it depends on the observation
    encoder: Encoder
    critic_encoder: Encoder | None  # None: the critic sees what the actor sees
    trunk: MLP | None
    gru: GRU | None
    observation_space: Space = static()
    action_space: Space = static()
    squashed: bool = static(default=False)

    @staticmethod
    def make(key: Array, spec: EnvSpec, design: Design) -> "ActorCritic":
        """Last layers start small: the first policy is near uniform, or near its mean."""
        actor_key, critic_key = jax.random.split(key)
        shown = without_mask(spec.observation)
        encoder = Encoder.make(jax.random.fold_in(actor_key, 1), _part(shown, design.actor_keys))
        critic_encoder = _critic_encoder(jax.random.fold_in(critic_key, 1), shown, encoder, design)
        width, hidden, trunk, gru = encoder.num_features, design.hidden_sizes, None, None
        if design.shared:
            gains = (design.hidden_gain, design.hidden_gain)
            trunk_key = jax.random.fold_in(actor_key, 2)
            trunk = MLP.make(trunk_key, (width, *hidden), design.activation, *gains)
            width, hidden = hidden[-1], ()
        if design.gru_units is not None:
            gru = GRU.make(jax.random.fold_in(actor_key, 3), width, design.gru_units)
            width = design.gru_units
        actor, log_std = _policy_head(actor_key, spec.action, (width, *hidden), design)
        critic = None
        if design.critic:
            if critic_encoder is not None:
                width = critic_encoder.num_features + (design.gru_units or 0)
            gains = (design.value_gain, design.hidden_gain)
            critic = MLP.make(critic_key, (width, *hidden, 1), design.activation, *gains)
        return ActorCritic(
            actor,
            critic,
            log_std,
            encoder,
            critic_encoder,
            trunk,
            gru,
            spec.observation,
            spec.action,
            design.squashed,
        )

    def policy(self, obs: Any, hidden: Array | None = None) -> Distribution:
        """What to do at an observation, given the hidden state before it."""
        outputs = self.actor(self._features(obs, hidden))
        if not isinstance(self.action_space, Box):
            masked = mask_space(self.observation_space) is not None
            mask = obs[ACTION_MASK] if masked else None
            return discrete_distribution(self.action_space, outputs, mask)
        shape, log_std = self.action_space.shape, self.log_std
        if log_std is None:
            outputs, own = jnp.split(outputs, 2)
            log_std = own.clip(*LOG_STD_RANGE).reshape(shape)
        return continuous_distribution(outputs.reshape(shape), log_std, self.squashed)

    def value(self, obs: Any, hidden: Array | None = None) -> Array:
        """The critic's value of an observation, given the hidden state before it."""
        if self.critic is None:
            return jnp.zeros(())
        if self.critic_encoder is None:
            return self.critic(self._features(obs, hidden))[0]
        features = self.critic_encoder(obs)
        if self.gru is not None:
            features = jnp.concatenate([self._features(obs, hidden), features])
        return self.critic(features)[0]

    def remember(self, obs: Any, hidden: Array) -> Array:
        """The hidden state after an observation, given the one before it."""
        assert self.gru is not None
        return self._features(obs, hidden)

    def _features(self, obs: Any, hidden: Array | None) -> Array:
        """What the heads see. With a GRU, it is the new hidden state."""
        x = self.encoder(obs)
        if self.trunk is not None:
            x = ACTIVATIONS[self.trunk.activation](self.trunk(x))
        if self.gru is None:
            return x
        assert hidden is not None
        return self.gru(x, hidden)

    def rescaled(self, old: Running, new: Running) -> "ActorCritic":
        """With a critic that means the same under ``new`` statistics as it did under ``old``.

        PopArt (van Hasselt et al. 2016): with σ v + μ = σ' v' + μ' for v = w·x + b,
            w' = w σ / σ',    b' = (σ b + μ − μ') / σ'
        """
        assert self.critic is not None
        last = self.critic.layers[-1]
        ratio = old.deviation / new.deviation
        moved = Dense(last.weight * ratio, new.standardised(old.restored(last.bias)))
        return dataclasses.replace(self, critic=_with_last(self.critic, moved))


def _part(space: Space, keys: tuple[str, ...]) -> Space:
    """The part of a Dict with these keys; all of it, or of another space, where there are none."""
    return space.select(keys) if keys and isinstance(space, Dict) else space


def _critic_encoder(key: Array, shown: Space, encoder: Encoder, design: Design) -> Encoder | None:
    """An encoder of the critic's own, where it sees something else or learns convolutions."""
    space = _part(shown, design.critic_keys)
    if not design.critic or design.shared or (space == encoder.space and not encoder.images):
        return None
    return Encoder.make(key, space)


def _policy_head(
    key: Array, space: Space, sizes: tuple[int, ...], design: Design
) -> tuple[MLP, Array | None]:
    """The actor's layers, and a log standard deviation where it does not depend on them."""
    outputs, gains = num_outputs(space), (design.policy_gain, design.hidden_gain)
    if not isinstance(space, Box):
        return MLP.make(key, (*sizes, outputs), design.activation, *gains), None
    if not design.state_dependent_std:
        log_std = jnp.full(space.shape, design.initial_log_std, jnp.float32)
        return MLP.make(key, (*sizes, outputs), design.activation, *gains), log_std
    head = MLP.make(key, (*sizes, 2 * outputs), design.activation, *gains)
    last = head.layers[-1]
    bias = last.bias.at[outputs:].set(design.initial_log_std)
    return _with_last(head, Dense(last.weight, bias)), None


def _with_last(mlp: MLP, layer: Dense) -> MLP:
    return dataclasses.replace(mlp, layers=(*mlp.layers[:-1], layer))
