"""REINFORCE (Williams 1992): the policy gradient with returns, less a baseline."""

import dataclasses

import jax.numpy as jnp
from jax import Array, lax

from trimtab.algos import construction, onpolicy, policy_gradient
from trimtab.algos.onpolicy import Learner, Sample
from trimtab.algos.optimisers import Adam
from trimtab.algos.settings import REINFORCESettings
from trimtab.nets.flat import Flat
from trimtab.ops.across import ALONE, Across
from trimtab.types import Rollout


@construction.numbers_are_leaves
@dataclasses.dataclass(frozen=True, kw_only=True)
class REINFORCE(REINFORCESettings):
    """See ``REINFORCESettings`` for the hyperparameters. Methods are for one lane or sample."""

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

    def optimiser_of(self, parameters: Flat) -> Adam:
        if self.baseline == "none":
            return construction.adam(self)
        critic = parameters.mask(lambda path, _: path.startswith("critic"))
        return construction.adam(self, jnp.where(critic, self.baseline_rate, 1.0))

    def prepare(
        self, learner: Learner, rollout: Rollout, across: Across = ALONE
    ) -> tuple[Sample, Array]:
        """Returns less the baseline, and the returns as its targets; leaves are [T, N, ...].

            G_t = Σ_k γᵏ r_{t+k} to the end of the episode,    A_t = G_t − b(s_t)

        That is GAE with λ = 1, whose sum telescopes. A return that is cut (by the clock, or by the
        end of the rollout) is completed by the baseline; without one it stays cut. With whole
        episodes, which ``collect.whole`` plays to their ends, the gradient is the mean over their
        transitions: what follows on a lane's last end belongs to none, and has the weight 0.
        """
        samples, values = onpolicy.estimated(self, learner, rollout, 1.0)
        if self.episodes == "fixed":
            return samples, values
        ended = (rollout.terminated | rollout.truncated).astype(jnp.float32)
        whole = lax.cummax(ended, axis=0, reverse=True)
        share = across.mean(whole.mean())
        return samples._replace(weight=whole / jnp.where(share > 0, share, 1.0)), values
