"""The policy gradient of A2C and REINFORCE: the loss of a sample, and steps on a rollout.

As in ``onpolicy``, these functions are methods of the algorithms that name them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.algos import diagnostics, onpolicy
from trimtab.algos.onpolicy import Learner, Sample
from trimtab.algos.sequences import gradient_of
from trimtab.nets.actor_critic import ActorCritic
from trimtab.nets.flat import Flat
from trimtab.ops.across import ALONE, Across
from trimtab.types import Metrics, Rollout


class Terms(NamedTuple):
    """The parts of one sample's loss."""

    policy: Array
    value: Array
    entropy: Array

    def mean(self) -> "Terms":
        return jax.tree.map(jnp.mean, self)


def terms(algorithm: Any, network: ActorCritic, sample: Sample) -> Terms:
    """The parts of one sample's loss.

    policy = −log π(a|s) A
    value  = ½ (V(s) − target)²,  0 without a critic
    """
    policy = network.policy(sample.obs, sample.hidden)
    value = jnp.zeros(())
    if network.critic is not None:
        value = 0.5 * (network.value(sample.obs, sample.hidden) - sample.target) ** 2
    parts = Terms(
        policy=-onpolicy.log_prob_of(policy, sample) * sample.advantage,
        value=value,
        entropy=policy.entropy(),
    )
    if sample.weight is None:
        return parts
    return jax.tree.map(lambda part: part * sample.weight, parts)


def weighed(algorithm: Any, terms: Terms) -> Array:
    """policy + c_v value − c_e entropy"""
    return (
        terms.policy
        + algorithm.value_coefficient * terms.value
        - algorithm.entropy_coefficient * terms.entropy
    )


def gradient(algorithm: Any, parameters: Flat, minibatch: Sample) -> tuple[Array, Terms]:
    """The flat gradient of a minibatch's mean loss, and the means of its terms."""
    return gradient_of(algorithm, parameters, minibatch, Terms.mean)


def update(
    algorithm: Any, learner: Learner, rollout: Rollout, key: Array, across: Across = ALONE
) -> tuple[Learner, Metrics]:
    """``epochs`` gradient steps, each on the whole rollout. No random number is needed."""
    del key
    now = algorithm.at(learner.updates)
    optimiser = now.optimiser_of(learner.parameters)
    prepared, values = now.prepare(learner, rollout, across)
    samples = onpolicy.samples_of(now, prepared, across)

    def one_step(state: Any, _: None) -> tuple[Any, tuple[Terms, Array]]:
        parameters, moments = state
        gradient, terms = now.gradient(parameters, samples)
        parameters, moments, norm = optimiser.step(parameters, moments, across.mean(gradient))
        return (parameters, moments), (terms, norm)

    start = (learner.parameters, learner.optimiser)
    (parameters, moments), (each, norms) = lax.scan(one_step, start, length=now.epochs)
    learned = learner._replace(parameters=parameters, optimiser=moments)
    after = onpolicy.with_statistics(
        now, learned, rollout, prepared.target, across, prepared.counted
    )
    means = across.mean(each.mean())
    metrics = {
        "train/policy_loss": means.policy,
        **diagnostics.of_entropy(now, learner, means.entropy),
        **diagnostics.of_gradients(now, norms[:, None]),
        **diagnostics.of_update(now, learner, learned, prepared, values, across),
    }
    if learner.parameters.network().critic is not None:
        metrics["train/value_loss"] = means.value
    return after, metrics
