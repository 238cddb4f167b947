"""Networks that the lab puts in place of a learner's: tables, and a critic that is exact."""

from typing import Any

import jax
from jax import Array

from trimtab.nets.heads import Categorical
from trimtab.nets.module import module
from trimtab.spaces import Discrete


@module
class TabularActorCritic:
    """A softmax policy with a logit for each state and action, and a value for each state."""

    logits: Array  # [S, A]
    values: Array  # [S]

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.logits.shape[-1])

    def policy(self, obs: Array) -> Categorical:
        return Categorical(_row(self.logits, obs))

    def value(self, obs: Array) -> Array:
        return _row(self.values, obs)


@module
class WithValues:
    """A network whose critic is a table: for asking what a perfect one would change."""

    network: Any
    values: Array  # [S]

    @property
    def action_space(self) -> Any:
        return self.network.action_space

    def policy(self, obs: Array) -> Any:
        return self.network.policy(obs)

    def value(self, obs: Array) -> Array:
        return _row(self.values, obs)


def _row(table: Array, state: Array) -> Array:
    # A product with a one-hot vector: its gradient needs no scatter, which is slow on CPUs.
    return jax.nn.one_hot(state, table.shape[0], dtype=table.dtype) @ table
