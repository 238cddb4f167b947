"""Actions without a policy, for what is measured or looked at before there is one."""

from typing import Any

import numpy as np

from trimtab.spaces import (
    ACTION_MASK,
    Box,
    Discrete,
    EnvSpec,
    MultiDiscrete,
    mask_space,
    to_environment,
)


def random_actions(spec: EnvSpec, obs: Any, lanes: int, rng: np.random.Generator) -> np.ndarray:
    """As an untrained policy takes them: uniform over choices and bounds, normal without bounds."""
    space = spec.action
    if isinstance(space, Discrete):
        weights = rng.random((lanes, space.n))
        if mask_space(spec.observation) is not None:
            weights = np.where(np.asarray(obs[ACTION_MASK], bool), weights, -1.0)
        return weights.argmax(axis=1).astype(np.int32)
    if isinstance(space, MultiDiscrete):
        return rng.integers(space.nvec, size=(lanes, *space.shape)).astype(np.int32)
    if isinstance(space, Box):
        bounded = space.bounded_elements()
        within = rng.uniform(-1, 1, (lanes, *space.shape))
        free = rng.standard_normal((lanes, *space.shape))
        policy = np.where(bounded, within, free).astype(np.float32)
        return np.asarray(to_environment(space, policy), space.dtype)
    shape = getattr(space, "shape", ())
    return rng.integers(2, size=(lanes, *shape)).astype(np.int8)
