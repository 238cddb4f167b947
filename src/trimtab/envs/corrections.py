"""Where gymnax errs, and how it is mended: dynamics that differ from Gymnasium's, wrong bounds.

A correction takes the environment's parameters and the state after a step, and gives the state
that Gymnasium would have. ``tests/parity`` compares the results with Gymnasium, step for step.
The other classic control environments agree with Gymnasium as they are.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp


def stop_at_left_wall(params: Any, state: Any) -> Any:
    """MountainCarContinuous: the car that hits the left wall stops, v ← 0 where x = x_min, v < 0.

    Gymnax stops it at the right end instead, so that its car stays pressed to the left wall until
    its speed is used up.
    """
    into_wall = (state.position <= params.min_position) & (state.velocity < 0)
    return state.replace(velocity=jnp.where(into_wall, 0.0, state.velocity))


# By the name of the gymnax class, so that gymnax need not be imported to read this table.
CORRECTIONS: dict[str, Callable[[Any, Any], Any]] = {"ContinuousMountainCar": stop_at_left_wall}

# Highest values of observations where gymnax gives others. Pong's are planes of zeros and ones,
# which makes them images.
HIGHEST_OBSERVED: dict[str, float] = {"Pong": 1.0}
