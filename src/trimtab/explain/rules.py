"""What is probably wrong with a configuration: one small function for each rule.

A rule looks at a ``Plan`` and answers with a ``Caution`` or with None. It says why, what to do, and
where that is known from.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

from trimtab.configuration import Configuration
from trimtab.explain.geometry import Geometry
from trimtab.spaces import Box, EnvSpec, is_image, leaf_spaces, without_mask
from trimtab.training.config import nearest_divisors

SMALLEST_MINIBATCH = 32
FEWEST_MINIBATCHES, MOST_MINIBATCHES = 4, 64
FEWEST_UPDATES = 50
MOST_EPOCHS = 20
LARGEST_EXCESS = 0.1
SHORT_ROLLOUT = 10  # horizons in a rollout's length
SHORT_HORIZON = 10  # episodes in a horizon
FEWEST_EPISODES = 16
LARGEST_PLAIN_INPUT = 10.0
LARGEST_LEARNING_RATE = 1e-2

ENGSTROM = "Engstrom et al. 2020, Implementation Matters in Deep RL (arXiv 2005.12729)"
ANDRYCHOWICZ = "Andrychowicz et al. 2020, What Matters in On-Policy RL (arXiv 2006.05990)"
DETAILS = "Huang et al. 2022, The 37 Implementation Details of PPO"
NOISE_SCALE = "McCandlish et al. 2018, Large-Batch Training (arXiv 1812.06162)"
STAGGER = "Bharthulwar et al. 2025, staggered resets (arXiv 2511.21011)"
MAYOR = "Mayor et al. 2025, parallel environments (arXiv 2506.03404)"
GAE = "Schulman et al. 2016, Generalised Advantage Estimation (arXiv 1506.02438)"
TIME_LIMITS = "Pardo et al. 2018, Time Limits in RL (arXiv 1712.00378)"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What rules look at."""

    configuration: Configuration
    geometry: Geometry
    spec: EnvSpec | None = None  # None where it was not looked up

    @property
    def training(self) -> Any:
        return self.configuration.training

    @property
    def algorithm(self) -> Any:
        return self.configuration.algorithm


@dataclasses.dataclass(frozen=True)
class Caution:
    """One thing to think about."""

    rule: str
    reason: str
    remedy: str
    source: str


Rule = Callable[[Plan], "Caution | None"]


def cautions(plan: Plan) -> list[Caution]:
    """All that there is to say, the most serious first."""
    return list(_found(plan))


def _found(plan: Plan) -> Iterator[Caution]:
    for rule in RULES:
        found = rule(plan)
        if found is not None:
            yield found


def indivisible(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.batch % shape.minibatches == 0:
        return None
    near = nearest_divisors(shape.batch, shape.minibatches)
    return Caution(
        "indivisible",
        f"{shape.num_envs} × {shape.num_steps} = {shape.batch:,} transitions cannot be cut into "
        f"{shape.minibatches} equal minibatches: `trimtab train` refuses it",
        f"--minibatches {' or '.join(map(str, near))}",
        "every transition is used exactly once an epoch",
    )


def under_one_update(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.requested_steps >= shape.batch:
        return None
    return Caution(
        "under_one_update",
        f"one rollout is {shape.batch:,} steps, more than the {shape.requested_steps:,} that were "
        f"asked for: the run is a single update",
        f"--total-steps of {FEWEST_UPDATES * shape.batch:,} or more, or fewer --num-envs",
        "arithmetic",
    )


def few_updates(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.updates >= FEWEST_UPDATES or shape.requested_steps < shape.batch:
        return None
    lanes = max(1, shape.requested_steps // (FEWEST_UPDATES * shape.num_steps))
    return Caution(
        "few_updates",
        f"the run has only {shape.updates} updates: a policy improves from update to update, and "
        f"{shape.num_envs} lanes spend the steps on few of them",
        f"--num-envs {lanes}, or --total-steps {FEWEST_UPDATES * shape.batch:,}",
        MAYOR,
    )


def exceeds_request(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.requested_steps < shape.batch or shape.excess <= (
        LARGEST_EXCESS * shape.requested_steps
    ):
        return None
    whole = shape.total_steps - shape.batch
    return Caution(
        "exceeds_request",
        f"whole updates make it {shape.total_steps:,} steps, {shape.excess:,} more than asked for",
        f"--total-steps {whole:,} or {shape.total_steps:,}, or a smaller rollout",
        "arithmetic",
    )


def small_minibatch(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.minibatch >= SMALLEST_MINIBATCH:
        return None
    fitting = max(1, shape.batch // SMALLEST_MINIBATCH)
    smaller = [d for d in nearest_divisors(shape.batch, fitting) if d <= fitting]
    remedy = f"--minibatches {smaller[-1]}" if smaller and shape.minibatches > 1 else ""
    return Caution(
        "small_minibatch",
        f"a gradient step sees {shape.minibatch:g} transitions: its direction is mostly noise, and "
        f"so are the mean and deviation with which their advantages are normalised",
        remedy or f"more --num-envs or --num-steps: {SMALLEST_MINIBATCH} transitions or more",
        NOISE_SCALE,
    )


def few_minibatches(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if not _has_minibatches(plan) or shape.minibatches >= FEWEST_MINIBATCHES:
        return None
    if shape.batch < FEWEST_MINIBATCHES * SMALLEST_MINIBATCH:
        return None  # the rollout is too small for more of them
    return Caution(
        "few_minibatches",
        f"{shape.minibatches} gradient step{'s' * (shape.minibatches > 1)} an epoch makes little "
        f"of a rollout of {shape.batch:,} transitions",
        f"--minibatches {FEWEST_MINIBATCHES} or more",
        DETAILS,
    )


def many_minibatches(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if not _has_minibatches(plan) or shape.minibatches <= MOST_MINIBATCHES:
        return None
    return Caution(
        "many_minibatches",
        f"{shape.minibatches} gradient steps an epoch move the policy far from the one that acted: "
        f"the later ones work on clipped ratios and stale advantages",
        f"--minibatches {MOST_MINIBATCHES} or fewer, or a target_kl",
        ENGSTROM,
    )


def many_epochs(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.epochs <= MOST_EPOCHS:
        return None
    return Caution(
        "many_epochs",
        f"each transition is used {shape.epochs} times, and all but the first passes are for a "
        f"policy that has moved on",
        "--epochs 3 to 10, or a target_kl that ends the passes early",
        ANDRYCHOWICZ,
    )


def short_rollout(plan: Plan) -> Caution | None:
    """A short T acts as a lower λ."""
    shape = plan.geometry
    acts_as = shape.acts_as_lambda
    longest = shape.longest_episode or math.inf
    if acts_as is None or shape.num_steps >= min(shape.reach, longest):
        return None
    return Caution(
        "short_rollout",
        f"T = {shape.num_steps} cuts advantages short, which reach {shape.reach:.0f} steps: "
        f"γλ then acts as with a λ of {acts_as:.2f}, not {shape.gae_lambda:g}",
        f"--num-steps {_power_of_two(min(shape.reach, longest))} with fewer lanes, or take the "
        f"lower λ on purpose",
        GAE,
    )


def rollout_under_horizon(plan: Plan) -> Caution | None:
    shape = plan.geometry
    needed = min(shape.horizon, shape.longest_episode or math.inf)
    if math.isinf(needed) or shape.num_steps * SHORT_ROLLOUT >= needed:
        return None
    return Caution(
        "rollout_under_horizon",
        f"a rollout is {shape.num_steps} steps and the discount looks {needed:.0f} ahead: what "
        f"comes later is known from the critic alone, which knows nothing at first",
        f"--num-steps {_power_of_two(needed / SHORT_ROLLOUT)} or more, or a smaller gamma",
        GAE,
    )


def horizon_under_episode(plan: Plan) -> Caution | None:
    shape = plan.geometry
    longest = shape.longest_episode
    if longest is None or shape.horizon * SHORT_HORIZON >= longest:
        return None
    return Caution(
        "horizon_under_episode",
        f"the discount looks {shape.horizon:.0f} steps ahead, in episodes of up to {longest}: "
        f"rewards further off hardly count",
        f"--gamma {1 - SHORT_HORIZON / longest:.4g} if rewards come late",
        TIME_LIMITS,
    )


def endless_sum(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.gamma < 1 or plan.spec is None or shape.longest_episode is not None:
        return None
    return Caution(
        "endless_sum",
        "gamma = 1 in episodes without a time limit: values may have no bound",
        "--gamma 0.99, or --max-episode-steps",
        TIME_LIMITS,
    )


def one_lane(plan: Plan) -> Caution | None:
    if plan.geometry.num_envs > 1:
        return None
    return Caution(
        "one_lane",
        "every minibatch is from a single environment: its transitions follow one another and tell "
        "much the same",
        "--num-envs 8 or more, with a shorter --num-steps",
        MAYOR,
    )


def in_phase(plan: Plan) -> Caution | None:
    shape = plan.geometry
    longest = shape.longest_episode
    if plan.training.staggered_starts != "off" or longest is None or shape.num_envs == 1:
        return None
    if shape.num_steps >= longest:
        return None
    return Caution(
        "in_phase",
        f"all lanes begin together, and those that reach the limit of {longest} steps end "
        f"together: a rollout of {shape.num_steps} then shows one part of the episode only",
        "--staggered-starts auto",
        STAGGER,
    )


def unscaled_observations(plan: Plan) -> Caution | None:
    if plan.spec is None or not isinstance(plan.spec.action, Box):
        return None
    if plan.algorithm.normalize_observations or not _is_unscaled(plan.spec):
        return None
    return Caution(
        "unscaled_observations",
        "continuous control on observations of unknown or unlike scales",
        "--normalize-observations",
        ANDRYCHOWICZ,
    )


def few_episodes(plan: Plan) -> Caution | None:
    shape = plan.geometry
    wanted = getattr(plan.algorithm, "fewest_episodes", 0)
    if shape.fewest_episodes is None or shape.fewest_episodes >= wanted:
        return None
    assert shape.longest_episode is not None
    lanes = -(-wanted * shape.longest_episode // shape.num_steps)
    return Caution(
        "few_episodes",
        f"a rollout holds {shape.fewest_episodes:.1f} episodes if they last {shape.longest_episode}"
        f" steps, and returns of fewer than {wanted} are mostly chance",
        f"--num-envs {lanes} or a longer --num-steps",
        "Williams 1992, the variance of REINFORCE",
    )


def costly_evaluation(plan: Plan) -> Caution | None:
    shape = plan.geometry
    most = shape.most_evaluation_steps
    if most is None or most <= shape.total_steps:
        return None
    return Caution(
        "costly_evaluation",
        f"{shape.evaluations} evaluations of {shape.eval_episodes} episodes may play {most:,} "
        f"steps, more than training does",
        "fewer --eval-episodes, or a larger --eval-every",
        "arithmetic",
    )


def large_learning_rate(plan: Plan) -> Caution | None:
    rate = plan.algorithm.learning_rate
    if rate <= LARGEST_LEARNING_RATE:
        return None
    return Caution(
        "large_learning_rate",
        f"learning_rate = {rate:g} moves each weight by about that much in every step of Adam",
        "--learning-rate 1e-3 or less to begin with",
        ANDRYCHOWICZ,
    )


# The most serious first.
RULES: tuple[Rule, ...] = (
    indivisible,
    under_one_update,
    few_updates,
    one_lane,
    small_minibatch,
    short_rollout,
    rollout_under_horizon,
    unscaled_observations,
    endless_sum,
    large_learning_rate,
    few_episodes,
    in_phase,
    many_minibatches,
    few_minibatches,
    many_epochs,
    horizon_under_episode,
    costly_evaluation,
    exceeds_request,
)


def _has_minibatches(plan: Plan) -> bool:
    """Whether their number is a setting of the algorithm at all."""
    fields = {field.name for field in dataclasses.fields(plan.algorithm)}
    return "minibatches" in fields


def _is_unscaled(spec: EnvSpec) -> bool:
    """Whether some number of an observation may be large, or is without a bound."""
    for _, space in leaf_spaces(without_mask(spec.observation)):
        if not isinstance(space, Box) or is_image(space):
            continue
        low, high = space.bounds()
        if (
            not (abs(low) <= LARGEST_PLAIN_INPUT).all()
            or not (abs(high) <= LARGEST_PLAIN_INPUT).all()
        ):
            return True
    return False


def _power_of_two(at_least: float) -> int:
    return 2 ** math.ceil(math.log2(max(1.0, at_least)))
