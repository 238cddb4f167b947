"""What is probably wrong with a configuration: one small function for each rule.

A rule looks at a ``Plan`` and answers with a ``Caution`` or with None. It says why, what to do, and
where that is known from.
"""

from collections.abc import Callable

from trimtab.explain import batches, horizons
from trimtab.explain.caution import Caution, Plan

Rule = Callable[[Plan], Caution | None]

# The most serious first.
RULES: tuple[Rule, ...] = (
    batches.empty_minibatches,
    batches.indivisible,
    batches.too_large,
    batches.under_one_update,
    batches.few_updates,
    batches.one_lane,
    batches.small_minibatch,
    horizons.short_rollout,
    horizons.rollout_under_horizon,
    horizons.unscaled_observations,
    horizons.endless_sum,
    horizons.large_learning_rate,
    horizons.no_whole_episode,
    horizons.few_episodes,
    horizons.in_phase,
    batches.many_minibatches,
    batches.few_minibatches,
    batches.many_epochs,
    horizons.horizon_under_episode,
    horizons.costly_evaluation,
    horizons.few_eval_episodes,
    batches.exceeds_request,
)


def cautions(plan: Plan) -> list[Caution]:
    """All that there is to say, the most serious first."""
    return [found for rule in RULES if (found := rule(plan)) is not None]
