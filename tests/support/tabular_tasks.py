"""Small random tasks and policies that are tables: what dynamic programming knows all of."""

import jax.numpy as jnp
import numpy as np

from trimtab.envs.tabular import TabularEnv
from trimtab.lab.exact import Chain
from trimtab.lab.networks import TabularActorCritic

DISCOUNT = 0.9


def random_task(seed=0, states=4, actions=2, outcomes=2, limit=5):
    """Random outcomes, rewards and ends; episodes begin in the first two states."""
    generator = np.random.default_rng(seed)
    table = {
        s: {
            a: [
                (p, int(generator.integers(states)), float(generator.normal()), bool(end))
                for p, end in zip(
                    generator.dirichlet(np.ones(outcomes)),
                    generator.random(outcomes) < 0.2,
                    strict=True,
                )
            ]
            for a in range(actions)
        }
        for s in range(states)
    }
    initial = np.zeros(states)
    initial[:2] = 0.3, 0.7
    return TabularEnv.of("Random-v0", table, initial, limit)


def random_network(env, seed=1):
    generator = np.random.default_rng(seed)
    states, actions = env.expected_reward.shape
    logits, values = generator.normal(size=(states, actions)), generator.normal(size=states)
    return TabularActorCritic(jnp.asarray(logits, jnp.float32), jnp.asarray(values, jnp.float32))


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def chain_of(env, network):
    return Chain(env, softmax(np.asarray(network.logits, np.float64)))
