"""Exact gradients of tabular tasks, by dynamic programming in float64.

Every expected policy gradient here has one form,

    E[ĝ] = −Σ_{s,a} w(s, a) ∇ log π(a|s),    w(s, a) = d(s) π(a|s) A(s, a)

and differs only in the distribution d of states and in the advantage A. So each is held as its
``Weights``; ``gradient`` chains them through any network. The sign is that of a loss. The same
weights give the critic's gradient, Σ_s (−Σ_a w(s, a)) ∇V(s), if A is target − V(s).

A lane's state is (s, τ): where it is and how many steps of its episode it has done, as the clock
counts them. Arrays over both are [L, S]; without a clock L is 1.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from trimtab.algos.gradients import Gradient
from trimtab.envs.tabular import TabularEnv
from trimtab.errors import SettingError

MOST_ATOMS = 4_000_000


class Weights(NamedTuple):
    """What an expected gradient is made of."""

    actions: np.ndarray  # [S, A]: d(s) π(a|s) A(s, a)
    states: np.ndarray  # [S]: d(s)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Chain:
    """A tabular task under one policy. All arrays are float64."""

    env: TabularEnv
    policy: np.ndarray  # [S, A]

    @property
    def clock(self) -> int:
        """Steps after which an episode is truncated; 1 stands for no clock."""
        return self.env.spec.max_episode_steps or 1

    @property
    def following(self) -> np.ndarray:
        """[S, S]: from state to state, of transitions that do not end the task."""
        return np.einsum("sa,sax->sx", self.policy, self.env.continuation)

    @property
    def rewards(self) -> np.ndarray:
        return (self.policy * self.env.expected_reward).sum(axis=1)

    # Values

    def state_values(self, discount: float) -> np.ndarray:
        """V(s) = Σ_a π(a|s) [R(s, a) + γ Σ_s' P(s'|s, a) V(s')], without a clock."""
        system = np.eye(len(self.policy)) - discount * self.following
        if np.linalg.cond(system, 1) > 1e12:
            raise SettingError(
                f"{self.env.spec.id} with gamma = {discount:g} has no finite values: some episode "
                "never ends. Choose a smaller gamma."
            )
        return np.linalg.solve(system, self.rewards)

    def action_values(self, discount: float, values: np.ndarray) -> np.ndarray:
        """Q(s, a) = R(s, a) + γ Σ_s' P(s'|s, a) V(s')."""
        return self.env.expected_reward + discount * self.env.continuation @ values

    def values_by_time_left(self, discount: float, horizon: int) -> np.ndarray:
        """[H + 1, S]: the expected return of h more steps, the clock ending the task."""
        values = [np.zeros(len(self.policy))]
        for _ in range(horizon):
            values.append(self.rewards + discount * self.following @ values[-1])
        return np.stack(values)

    def expected_return(self) -> float:
        """Of a whole episode with its clock, undiscounted."""
        if self.clock == 1:
            return float(self.env.initial @ self.state_values(1.0))
        return float(self.env.initial @ self.values_by_time_left(1.0, self.clock)[-1])

    # Distributions of states

    def fresh(self) -> np.ndarray:
        """[L, S]: lanes at the first state of an episode."""
        start = np.zeros((self.clock, len(self.policy)))
        start[0] = self.env.initial
        return start

    def one_step_later(self, lanes: np.ndarray) -> np.ndarray:
        """The distribution [L, S] after a step; what ended begins again."""
        moved = lanes @ self.following
        if self.clock > 1:
            moved = np.concatenate([np.zeros_like(moved[:1]), moved[:-1]])
        moved[0] += (1.0 - moved.sum()) * self.env.initial
        return moved

    def carried(self, steps: int) -> np.ndarray:
        """Lanes that began fresh and have been carried on for that many steps."""
        lanes = self.fresh()
        for _ in range(steps):
            lanes = self.one_step_later(lanes)
        return lanes

    def stationary(self) -> np.ndarray:
        """[L, S]: lanes at a moment that knows nothing of when they began.

        The expected visits of one episode, d_τ = initial P^τ, divided by its expected length.
        """
        if self.clock == 1:
            visits = self._visits(1.0)[None]
        else:
            rows = [self.env.initial]
            for _ in range(self.clock - 1):
                rows.append(rows[-1] @ self.following)
            visits = np.stack(rows)
        return visits / visits.sum()

    def discounted(self, discount: float) -> np.ndarray:
        """[S]: Σ_t γ^t P(s_t = s) from the first state on, without a clock, scaled to sum to 1."""
        visits = self._visits(discount)
        return visits / visits.sum()

    def _visits(self, discount: float) -> np.ndarray:
        system = np.eye(len(self.policy)) - discount * self.following
        if np.linalg.cond(system, 1) > 1e12:
            raise SettingError(f"{self.env.spec.id}: some episode never ends, and has no clock.")
        return np.linalg.solve(system.T, self.env.initial)

    # Expected gradients

    def true_weights(self, states: np.ndarray, discount: float, critic: np.ndarray) -> Weights:
        """With A(s, a) = Q(s, a) − V̂(s) of exact action values.

        ``states`` chooses which gradient is meant: ``discounted`` makes it that of the discounted
        return (over the episode's discounted length), ``stationary`` the form used in practice.
        """
        values = self.state_values(discount)
        advantages = self.action_values(discount, values) - critic[:, None]
        return Weights(states[:, None] * self.policy * advantages, states)

    def estimated_weights(
        self,
        lanes: np.ndarray,
        horizon: int,
        discount: float,
        trace: float,
        critic: np.ndarray,
    ) -> Weights:
        """What the mean gradient of T steps with GAE expects, from lanes [L, S] on.

        With k steps left in the rollout and L − τ on the clock, a sum of min(k, L − τ) errors.
        """
        advantages = self.advantages(horizon, discount, trace, critic)
        actions, states = np.zeros_like(self.policy), np.zeros(len(self.policy))
        clock_left = self.clock - np.arange(self.clock)
        for t in range(horizon):
            left = np.full(self.clock, horizon - t)
            if self.clock > 1:
                left = np.minimum(left, clock_left)
            actions += np.einsum("ls,lsa->sa", lanes, advantages[left - 1])
            states += lanes.sum(axis=0)
            lanes = self.one_step_later(lanes)
        return Weights(self.policy * actions / horizon, states / horizon)

    def advantages(
        self, horizon: int, discount: float, trace: float, critic: np.ndarray
    ) -> np.ndarray:
        """[T, S, A]: the expected sum of k = 1 … T discounted errors after (s, a).

        δ(s, a) = R(s, a) + γ Σ P(s'|s, a) V̂(s') − V̂(s)
        A_k(s, a) = δ(s, a) + γ λ Σ P(s'|s, a) Σ_a' π(a'|s') A_{k−1}(s', a')
        """
        errors = self.action_values(discount, critic) - critic[:, None]
        rows = [errors]
        for _ in range(horizon - 1):
            later = (self.policy * rows[-1]).sum(axis=1)
            rows.append(errors + discount * trace * self.env.continuation @ later)
        return np.stack(rows)

    def limit_advantages(self, discount: float, trace: float, critic: np.ndarray) -> np.ndarray:
        """[S, A]: the same without end, T → ∞."""
        errors = self.action_values(discount, critic) - critic[:, None]
        system = np.eye(len(self.policy)) - discount * trace * self.following
        later = np.linalg.solve(system, (self.policy * errors).sum(axis=1))
        return errors + discount * trace * self.env.continuation @ later


# Data of one policy, gradient of another: drift and clipping


def reused(weights: Weights, collected_by: np.ndarray, policy: np.ndarray) -> Weights:
    """The weights of r A ∇ log π, r = π/π_old, on data that another policy collected."""
    return Weights(weights.actions * policy / collected_by, weights.states)


def clipped_weights(
    chain: Chain,
    policy: np.ndarray,
    clip_range: float,
    horizon: int,
    discount: float,
    trace: float,
    critic: np.ndarray,
    lanes: np.ndarray,
) -> Weights:
    """The expected gradient of PPO's clipped surrogate at ``policy``, on data of ``chain``'s.

    A sample whose ratio has left the clip range in the direction of its advantage's sign counts
    for nothing:

        w(s, a) = d(s) π_old(a|s) r E[A 1(not (A > 0 and r > 1 + ε) and not (A < 0 and r < 1 − ε))]

    That needs the distribution of the sampled advantage and not its mean: all futures are listed.
    """
    ratio = policy / chain.policy
    too_high, too_low = ratio > 1 + clip_range, ratio < 1 - clip_range
    actions, states = np.zeros_like(policy), np.zeros(len(policy))
    kept_by_left: dict[int, np.ndarray] = {}

    def kept(left: int) -> np.ndarray:
        """[S, A]: the expectation above with ``left`` errors in the sum."""
        left = 1 if trace == 0 else left
        if left not in kept_by_left:
            chance, advantage = advantage_atoms(chain, left, discount, trace, critic)
            dropped = (too_high[..., None] & (advantage > 0)) | (
                too_low[..., None] & (advantage < 0)
            )
            kept_by_left[left] = (chance * advantage * ~dropped).sum(axis=-1)
        return kept_by_left[left]

    for t in range(horizon):
        for time in np.flatnonzero(lanes.sum(axis=1)):
            left = horizon - t if chain.clock == 1 else min(horizon - t, chain.clock - int(time))
            actions += lanes[time][:, None] * kept(left)
        states += lanes.sum(axis=0)
        lanes = chain.one_step_later(lanes)
    return Weights(policy * actions / horizon, states / horizon)


def advantage_atoms(
    chain: Chain, left: int, discount: float, trace: float, critic: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The distribution of the sampled advantage of (s, a): chances and values [S, A, atoms]."""
    env = chain.env
    states, actions, outcomes = env.probability.shape
    if states * actions * outcomes * (actions * outcomes) ** (left - 1) > MOST_ATOMS:
        raise SettingError(
            f"{env.spec.id}: the futures of {left} steps are too many to list, so clipping has no "
            "exact gradient here. With lambda = 0 it has one."
        )
    goes_on = ~env.terminated
    error = env.reward + discount * goes_on * critic[env.next_state] - critic[:, None, None]
    chance, value = env.probability, error
    later_chance, later_value = env.probability, error
    for _ in range(left - 1):
        # Of the next state: all its actions and what came after each.
        flat_chance = (chain.policy[..., None] * later_chance).reshape(states, -1)
        flat_value = later_value.reshape(states, -1)
        decay = discount * trace * goes_on[..., None]
        chance = env.probability[..., None] * flat_chance[env.next_state]
        value = error[..., None] + decay * flat_value[env.next_state]
        later_chance = chance.reshape(states, actions, -1)
        later_value = value.reshape(states, actions, -1)
    return chance.reshape(states, actions, -1), value.reshape(states, actions, -1)


# Through a network


def policy_table(network: Any, states: int, actions: int) -> np.ndarray:
    """π(a|s) of a network, [S, A]."""
    table = np.asarray(_tables(network, states, actions)[0], np.float64)
    return table / table.sum(axis=1, keepdims=True)


def value_table(network: Any, states: int, actions: int) -> np.ndarray:
    """V̂(s) of a network, [S]."""
    return np.asarray(_tables(network, states, actions)[1], np.float64)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _tables(network: Any, states: int, actions: int) -> tuple[jax.Array, jax.Array]:
    def row(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        log_prob = network.policy(state).log_prob
        log_probs = jax.vmap(log_prob)(jnp.arange(actions, dtype=jnp.int32))
        return jnp.exp(log_probs), network.value(state)

    return jax.vmap(row)(jnp.arange(states, dtype=jnp.int32))


def weighted_losses(states: int, actions: int) -> dict[str, Callable[[Any, Any], jax.Array]]:
    """For each head a loss of the whole network whose gradient is the one that weights expect."""
    every_state = jnp.arange(states, dtype=jnp.int32)
    every_action = jnp.arange(actions, dtype=jnp.int32)

    def actor(network: Any, weights: Any) -> jax.Array:
        def log_probs(state: jax.Array) -> jax.Array:
            return jax.vmap(network.policy(state).log_prob)(every_action)

        return -(weights.actions * jax.vmap(log_probs)(every_state)).sum()

    def critic(network: Any, weights: Any) -> jax.Array:
        return -(weights.actions.sum(axis=1) * jax.vmap(network.value)(every_state)).sum()

    def entropy(network: Any, weights: Any) -> jax.Array:
        entropies = jax.vmap(lambda state: network.policy(state).entropy())(every_state)
        return -(weights.states * entropies).sum()

    return {"actor": actor, "critic": critic, "entropy": entropy}


def gradient(head: str, used: tuple[bool, ...], network: Any, weights: Weights) -> np.ndarray:
    """The flat gradient of one head that ``weights`` expect, for any network."""
    single = jax.tree.map(lambda array: jnp.asarray(array, jnp.float32), weights)
    loss, whole = _weighted_gradient(head, *weights.actions.shape)
    return np.asarray(Gradient(loss, used).flat(whole(network, single)), np.float64)


@functools.cache
def _weighted_gradient(head: str, states: int, actions: int) -> tuple[Any, Any]:
    loss = weighted_losses(states, actions)[head]
    return loss, jax.jit(jax.grad(loss))


def softmax_gradient(policy: np.ndarray, weights: Weights) -> np.ndarray:
    """The actor's gradient for a table of logits [S, A], in float64:

    ∂/∂logit(s, b) = −[w(s, b) − π(b|s) Σ_a w(s, a)]
    """
    return -(weights.actions - policy * weights.actions.sum(axis=1, keepdims=True))
