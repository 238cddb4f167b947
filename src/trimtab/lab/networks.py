"""A network that is two tables: what exact gradients are checked against."""

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

    @property
    def gru(self) -> None:
        """It is not recurrent."""
        return None

    @property
    def critic(self) -> Array:
        """It has one."""
        return self.values

    def policy(self, obs: Array, hidden: None = None) -> Categorical:
        return Categorical(_row(self.logits, obs))

    def value(self, obs: Array, hidden: None = None) -> Array:
        return _row(self.values, obs)


def _row(table: Array, state: Array) -> Array:
    # A product with a one-hot vector: its gradient needs no scatter, which is slow on CPUs.
    return jax.nn.one_hot(state, table.shape[0], dtype=table.dtype) @ table
