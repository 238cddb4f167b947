"""Which algorithms the lab can measure, and of which dynamic programming knows what to expect."""

from typing import Any

from trimtab.errors import SettingError


def check_algorithm(algorithm: Any, traces: tuple[float, ...]) -> None:
    """Refuse an algorithm without a loss per sample of a rollout, and λ for one that has none."""
    name = type(algorithm).__name__
    if not (hasattr(algorithm, "prepare") and hasattr(algorithm, "terms")):
        raise SettingError(
            f"The lab measures policy gradients of rollouts, and {name} learns in another way: "
            "expected PPO, A2C or REINFORCE."
        )
    if algorithm.gru_units is not None:
        raise SettingError(
            f"The lab takes the gradient of one transition at a time, and this {name} has a memory "
            f"(gru_units = {algorithm.gru_units}), whose gradient goes back through time: expected "
            "a policy without one."
        )
    if getattr(algorithm, "episodes", "fixed") == "whole":
        raise SettingError(
            f"The lab measures rollouts of a fixed length, and episodes = whole has none: expected "
            f"{name} with episodes = fixed."
        )
    if traces and not hasattr(algorithm, "gae_lambda"):
        raise SettingError(f"--lambdas has no effect on {name}, which has no lambda.")


def is_plain(algorithm: Any) -> bool:
    """Whether its gradient follows the environment's rewards and the critic's values as they are.

    And whether the policy sees all of the state: then dynamic programming knows the expectation.
    """
    return (
        not algorithm.normalize_rewards
        and algorithm.reward_scale is None
        and algorithm.reward_clip is None
        and algorithm.value_normalization == "off"
        and algorithm.gru_units is None
    )
