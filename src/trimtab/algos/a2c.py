"""Advantage actor-critic (Mnih et al. 2016), synchronous: one gradient step on each rollout."""

import dataclasses

from jax import Array

from trimtab.algos import construction, onpolicy, policy_gradient
from trimtab.algos.onpolicy import Learner, Sample
from trimtab.algos.optimisers import Adam, RMSProp
from trimtab.algos.settings import A2CSettings
from trimtab.nets.flat import Flat
from trimtab.ops.across import ALONE, Across
from trimtab.types import Rollout


@construction.numbers_are_leaves
@dataclasses.dataclass(frozen=True, kw_only=True)
class A2C(A2CSettings):
    """See ``A2CSettings`` for the hyperparameters. Methods are for one lane or one sample."""

    total_updates: float = float("inf")  # the length of schedules; a training run sets it

    init = construction.init
    actor = onpolicy.actor
    first_memory = onpolicy.first_memory
    noise = onpolicy.noise
    act = onpolicy.act
    best_action = onpolicy.best_action
    after_step = onpolicy.after_step
    at = construction.at
    terms = policy_gradient.terms
    weighed = policy_gradient.weighed
    loss = onpolicy.loss
    gradient = policy_gradient.gradient
    update = policy_gradient.update

    def optimiser_of(self, parameters: Flat) -> Adam | RMSProp:
        if self.optimiser == "adam":
            return construction.adam(self)
        return RMSProp(construction.descent(self), self.rmsprop_decay, self.rmsprop_epsilon)

    def prepare(
        self, learner: Learner, rollout: Rollout, across: Across = ALONE
    ) -> tuple[Sample, Array]:
        """Advantages and targets; leaves are [T, N, ...]. Also the critic's values.

        With λ = 1 the targets are n-step returns: each sums the rewards to the end of the rollout,
        and the critic's value there stands for the rest.
        """
        return onpolicy.estimated(self, learner, rollout, self.gae_lambda)
