"""What PPO, A2C and REINFORCE have in common, as functions.

An algorithm names some of them in its body (``act = onpolicy.act``): they are then its methods, and
their first argument is the algorithm. There is no base class with behaviour.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.algos.observations import merged, normalised
from trimtab.algos.sequences import starts_of, units, unrolled
from trimtab.nets.actor_critic import ActorCritic
from trimtab.nets.flat import Flat
from trimtab.nets.heads import Distribution, SquashedGaussian, sampling_noise, squashed
from trimtab.ops.across import Across
from trimtab.ops.returns import advantages_of_lanes, discounted_so_far
from trimtab.ops.rows import evaluate_where
from trimtab.ops.running import Running
from trimtab.types import Action, Memory, Observation, Rollout

# Statistics of value targets forget what is older than this many rollouts: targets grow while the
# policy learns.
REMEMBERED_ROLLOUTS = 20
# The share of a log-probability (and of 1) that two programs may differ by for the same network:
# some ten times what was seen, and a hundredth of what the smallest useful step makes.
ROUNDING = 1e-5


class Actor(NamedTuple):
    """The little that is needed to act."""

    network: ActorCritic
    observations: Any


class Learner(NamedTuple):
    """Everything that learning changes. What no setting asks for is None."""

    parameters: Flat
    optimiser: Any
    observations: Any  # statistics with which observations are normalised
    updates: Array
    rewards: Running | None = None  # of discounted returns, by whose deviation rewards are divided
    targets: Running | None = None  # of value targets, with which the critic's are normalised
    rate: Array | None = None  # what an adaptive learning rate has become, over the one given


class LaneMemory(NamedTuple):
    """What a lane remembers between steps; None where nothing is."""

    hidden: Array | None = None  # of a recurrent policy
    discounted: Array | None = None  # the discounted return of the episode so far


class Sample(NamedTuple):
    """One transition as a loss sees it. What no setting asks for is None."""

    obs: Observation  # normalised
    action: Action
    log_prob: Array  # of the action, or of what was squashed, under the policy that acted
    advantage: Array
    target: Array  # for the critic, in its units
    value: Array | None = None  # what the critic said before the update, to clip by
    before: Array | None = None  # what was squashed into the action
    weight: Array | None = None  # of the sample in means; 1 on the average, 0 where none counts
    hidden: Array | None = None  # of a recurrent policy, before this step
    starts: Array | None = None  # whether an episode begins here, other than at the rollout's start

    @property
    def counted(self) -> Array | None:
        """Which of the samples count; None: all of them."""
        return None if self.weight is None else self.weight > 0


# -------------------------------------------------------------------- methods of every algorithm


def actor(algorithm: Any, learner: Learner) -> Actor:
    return Actor(learner.parameters.network(), learner.observations)


def noise(algorithm: Any, actor: Actor, key: Array, num_steps: int) -> Array:
    """One lane's random numbers for ``num_steps`` actions."""
    return sampling_noise(actor.network.action_space, key, num_steps)


def first_memory(algorithm: Any, actor: Actor) -> LaneMemory:
    """What a lane remembers at the beginning of an episode."""
    gru = actor.network.gru
    return LaneMemory(
        hidden=None if gru is None else jnp.zeros(gru.units),
        discounted=jnp.float32(0.0) if algorithm.normalize_rewards else None,
    )


def act(
    algorithm: Any, actor: Actor, memory: LaneMemory, obs: Observation, noise: Array
) -> tuple[Action, dict[str, Array], Memory]:
    """Sample an action for one lane."""
    seen = normalised(actor.observations, obs)
    policy = actor.network.policy(seen, memory.hidden)
    later = _remembering(actor, memory, seen)
    if isinstance(policy, SquashedGaussian):
        # What squashing adds to a log-probability depends on the action alone: it cancels in every
        # ratio and has no gradient. Left out, it cannot round either.
        before = policy.normal.sample(noise)
        noted = {"log_prob": policy.normal.log_prob(before), "before": before}
        return squashed(before), noted, later
    action = policy.sample(noise)
    return action, {"log_prob": policy.log_prob(action)}, later


def best_action(
    algorithm: Any, actor: Actor, memory: LaneMemory, obs: Observation
) -> tuple[Action, Memory]:
    """The policy's most likely action for one lane."""
    seen = normalised(actor.observations, obs)
    action = actor.network.policy(seen, memory.hidden).mode()
    return action, _remembering(actor, memory, seen)


def _remembering(actor: Actor, memory: LaneMemory, seen: Observation) -> LaneMemory:
    if memory.hidden is None:
        return memory
    return memory._replace(hidden=actor.network.remember(seen, memory.hidden))


def after_step(
    algorithm: Any, actor: Actor, memory: LaneMemory, reward: Array, ended: Array
) -> Memory:
    """The memory once the environment has answered; a new one where the episode ended."""
    hidden, discounted = memory
    if hidden is not None:
        hidden = jnp.where(ended, 0.0, hidden)
    if discounted is not None:
        discounted = jnp.where(ended, 0.0, discount(algorithm) * discounted + reward)
    return LaneMemory(hidden, discounted)


def log_prob_of(policy: Distribution, sample: Sample) -> Array:
    """As the actor noted it: of the action, or of what was squashed into it."""
    if isinstance(policy, SquashedGaussian) and sample.before is not None:
        return policy.normal.log_prob(sample.before)
    return policy.log_prob(sample.action)


def log_ratio(policy: Distribution, sample: Sample) -> Array:
    """log π(a|s) − log π_old(a|s), and 0 where that is no more than rounding.

    The same network gives other last digits when it is compiled into another program: collecting
    takes one step of all lanes, a gradient the rows of a minibatch, a recurrent policy's whole
    sequences. So that a policy that has not moved has a ratio of 1, differences up to ``ROUNDING``
    are taken for none; gradients are what they would be.
    """
    difference = log_prob_of(policy, sample) - sample.log_prob
    limit = ROUNDING * jnp.maximum(1.0, jnp.abs(sample.log_prob))
    rounding = jnp.where(jnp.abs(difference) <= limit, difference, 0.0)
    return difference - lax.stop_gradient(rounding)


def loss(algorithm: Any, network: ActorCritic, sample: Sample) -> Array:
    """One sample's loss; ``vmap(grad(loss))`` gives gradients per sample."""
    return algorithm.weighed(algorithm.terms(network, sample))


# ------------------------------------------------------------------------------- shared pieces


def discount(algorithm: Any) -> Array | float:
    """γ, however it was given."""
    return algorithm.gamma if algorithm.horizon is None else 1.0 - 1.0 / algorithm.horizon


def estimated(
    algorithm: Any, learner: Learner, rollout: Rollout, trace: Array | float
) -> tuple[Sample, Array]:
    """A rollout as samples with advantages and targets, [T, N, ...]; also the critic's values.

    Rewards, and the targets and values of a critic that learns normalised ones, are scaled by the
    statistics of the rollouts before this one.
    """
    network = learner.parameters.network()
    obs = normalised(learner.observations, rollout.obs)
    hidden, starts, later_hidden = hidden_states(network, obs, rollout)

    def value_of(seen: tuple[Observation, Array | None]) -> Array:
        return jax.vmap(network.value)(*seen)

    def value_of_raw(seen: tuple[Observation, Array | None]) -> Array:
        return value_of((normalised(learner.observations, seen[0]), seen[1]))

    shape = rollout.reward.shape
    critic = value_of(units((obs, hidden), recurrent=False)).reshape(shape)
    successors = (rollout.next_obs, later_hidden)
    last = jax.tree.map(lambda leaf: leaf[-1], successors)
    # One step later in the same lane is the successor, unless the episode was truncated there.
    later = jnp.concatenate([critic[1:], value_of_raw(last)[None]])
    next_critic = evaluate_where(
        (rollout.truncated & ~rollout.terminated).reshape(-1),
        value_of_raw,
        units(successors, recurrent=False),
        later.reshape(-1),
    ).reshape(shape)
    restore = (lambda one: one) if learner.targets is None else learner.targets.restored
    values = restore(critic)
    advantages = advantages_of_lanes(
        scaled_rewards(algorithm, learner, rollout.reward),
        values,
        restore(next_critic),
        rollout.terminated,
        rollout.truncated,
        discount(algorithm),
        trace,
    )
    targets = advantages + values
    sample = Sample(
        obs=obs,
        action=rollout.action,
        log_prob=rollout.extras["log_prob"],
        before=rollout.extras.get("before"),
        advantage=advantages,
        target=targets if learner.targets is None else learner.targets.standardised(targets),
        hidden=hidden,
        starts=starts,
    )
    return sample, critic


def hidden_states(
    network: ActorCritic, obs: Observation, rollout: Rollout
) -> tuple[Array | None, Array | None, Array | None]:
    """Of a recurrent policy: hidden states before each step, episode starts, states after; [T, N].

    Those before are the ones with which the lanes acted.
    """
    if network.gru is None:
        return None, None, None
    starts = starts_of(rollout.terminated | rollout.truncated)
    along_lanes = jax.vmap(unrolled, in_axes=(None, 1, 0, 1), out_axes=1)
    before, after = along_lanes(network, obs, rollout.memory.hidden, starts)
    return before, starts, after


def scaled_rewards(algorithm: Any, learner: Learner, rewards: Array) -> Array:
    """clip(scale · r / σ), as far as each is asked for; nothing is subtracted."""
    if learner.rewards is not None:
        rewards = rewards / learner.rewards.deviation
    if algorithm.reward_scale is not None:
        rewards = rewards * algorithm.reward_scale
    if algorithm.reward_clip is not None:
        rewards = rewards.clip(-algorithm.reward_clip, algorithm.reward_clip)
    return rewards


def samples_of(algorithm: Any, prepared: Sample, across: Across) -> Sample:
    """What gradient steps use: transitions [B, ...], or lanes [N, T, ...] of a recurrent policy.

    Advantages are normalised here if they are to be over the whole rollout.
    """
    samples = units(prepared, recurrent=prepared.hidden is not None)
    if algorithm.advantage_normalization != "batch":
        return samples
    return shifted_and_scaled(samples, tuple(range(samples.advantage.ndim)), across)


def shifted_and_scaled(samples: Sample, axes: tuple[int, ...], across: Across) -> Sample:
    """Samples with advantages (A − mean) / (deviation + 10⁻⁸) over these axes and all devices."""

    def mean(each: Array) -> Array:
        weighted = each if samples.weight is None else each * samples.weight
        return across.mean(weighted.mean(axis=axes, keepdims=True))

    centred = samples.advantage - mean(samples.advantage)
    return samples._replace(advantage=centred / (jnp.sqrt(mean(centred**2)) + 1e-8))


def with_statistics(
    algorithm: Any,
    learner: Learner,
    rollout: Rollout,
    targets: Array,
    across: Across,
    counted: Array | None = None,
) -> Learner:
    """The learner after a rollout: its statistics know of it, and one more update is counted.

    This comes after the gradient steps. Observations are then normalised as they were when the
    actions were chosen, and the policy ratio begins at 1. ``targets`` are the samples'; ``counted``
    is theirs too.
    """
    counted = None if counted is None else counted.reshape(-1)
    parameters, rewards, statistics = learner.parameters, learner.rewards, learner.targets
    if rewards is not None:
        ended = rollout.terminated | rollout.truncated
        returns = discounted_so_far(
            rollout.reward, ended, rollout.memory.discounted, discount(algorithm)
        )
        rewards = rewards.merge(returns.reshape(-1), across, counted)
    if statistics is not None:
        size = targets.size * across.devices
        if counted is not None:
            size = across.sum(counted.sum().astype(jnp.float32))
        seen = statistics.restored(targets).reshape(-1)
        fresh = statistics.aged((REMEMBERED_ROLLOUTS - 1) * size).merge(seen, across, counted)
        if algorithm.value_normalization == "popart":
            parameters = Flat.of(parameters.network().rescaled(statistics, fresh))
        statistics = fresh
    return learner._replace(
        parameters=parameters,
        observations=merged(
            learner.observations, units(rollout.obs, recurrent=False), across, counted
        ),
        updates=learner.updates + 1,
        rewards=rewards,
        targets=statistics,
    )
