"""Rules about time (discount, rollout, episodes, evaluations) and about scales."""

import math

from trimtab.explain.caution import (
    ANDRYCHOWICZ,
    GAE,
    HENDERSON,
    STAGGER,
    TIME_LIMITS,
    WILLIAMS,
    Caution,
    Plan,
)
from trimtab.spaces import Box, EnvSpec, is_image, leaf_spaces, without_mask

SHORT_ROLLOUT = 10  # horizons in a rollout's length
SHORT_HORIZON = 10  # episodes in a horizon
FEWEST_EVAL_EPISODES = 5
LARGEST_PLAIN_INPUT = 1.0
LARGEST_LEARNING_RATE = 1e-2


def short_rollout(plan: Plan) -> Caution | None:
    """A short T acts as a lower λ. With λ = 1 returns of T steps are what was asked for."""
    shape = plan.geometry
    if shape.gae_lambda == 1:
        return None
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
    if longest is None or round(shape.horizon * SHORT_HORIZON, 6) >= longest:
        return None
    return Caution(
        "horizon_under_episode",
        f"the discount looks {shape.horizon:.0f} steps ahead, in episodes of up to {longest}: "
        f"rewards further off hardly count",
        f"--horizon {longest} if rewards come late",
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


def no_whole_episode(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if not shape.whole or shape.longest_episode is None or shape.num_steps >= shape.longest_episode:
        return None
    return Caution(
        "no_whole_episode",
        f"episodes = whole needs room for a whole episode in each lane, and episodes may last "
        f"{shape.longest_episode} steps, more than T = {shape.num_steps}: training refuses it",
        f"--num-steps {shape.longest_episode} or more, with fewer lanes, or --episodes fixed",
        WILLIAMS,
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
        WILLIAMS,
    )


def few_eval_episodes(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.eval_episodes >= FEWEST_EVAL_EPISODES:
        return None
    return Caution(
        "few_eval_episodes",
        f"the mean return of {shape.eval_episodes} episode{'s' * (shape.eval_episodes > 1)} is "
        f"mostly chance, and the best checkpoint is chosen by it",
        "--eval-episodes 20",
        HENDERSON,
    )


def costly_evaluation(plan: Plan) -> Caution | None:
    shape = plan.geometry
    most = shape.most_evaluation_steps
    if most is None or most <= shape.total_steps:
        return None
    return Caution(
        "costly_evaluation",
        f"{shape.evaluations + 1} evaluations of {shape.eval_episodes} episodes may play {most:,} "
        f"steps, more than training does",
        "fewer --eval-episodes, or a larger --eval-every",
        "arithmetic",
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


def _is_unscaled(spec: EnvSpec) -> bool:
    """Whether some number of an observation may be beyond ±1, or is without a bound."""
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


def _power_of_two(at_least: float) -> int:
    return 2 ** math.ceil(math.log2(max(1.0, at_least)))
