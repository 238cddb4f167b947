"""What the lab asks of an algorithm beside its losses."""

from typing import Any


def discount(algorithm: Any) -> float:
    """γ, however it was given."""
    horizon = getattr(algorithm, "horizon", None)
    return float(algorithm.gamma if horizon is None else 1.0 - 1.0 / horizon)


def is_plain(algorithm: Any) -> bool:
    """Whether its gradient follows the environment's rewards and the critic's values as they are.

    Only then does dynamic programming know what it expects.
    """
    return (
        not getattr(algorithm, "normalize_rewards", False)
        and getattr(algorithm, "reward_scale", None) is None
        and getattr(algorithm, "reward_clip", None) is None
        and getattr(algorithm, "value_normalization", "off") == "off"
        and getattr(algorithm, "episodes", "fixed") == "fixed"
    )


def optimiser_of(algorithm: Any, parameters: Any) -> Any:
    if hasattr(algorithm, "optimiser_of"):
        return algorithm.optimiser_of(parameters)
    return algorithm._adam()
