"""From an observation of any space to a vector of floats."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.nets.module import module, static
from trimtab.nets.networks import ImageEncoder
from trimtab.spaces import (
    Box,
    Dict,
    Discrete,
    LeafSpace,
    MultiBinary,
    MultiDiscrete,
    Space,
    is_image,
    leaf_spaces,
)


@module
class Encoder:
    """The parts of an observation side by side: images by convolutions, the rest as they are."""

    images: tuple[ImageEncoder, ...]  # one for each image, in the order of the space
    space: Space = static()

    @staticmethod
    def make(key: Array, space: Space) -> "Encoder":
        shapes = [leaf.shape for _, leaf in leaf_spaces(space) if is_image(leaf)]
        keys = jax.random.split(key, max(1, len(shapes)))
        made = [ImageEncoder.make(k, shape) for k, shape in zip(keys, shapes, strict=False)]
        return Encoder(tuple(made), space)

    @property
    def num_features(self) -> int:
        """Length of the vector."""
        leaves = [leaf for _, leaf in leaf_spaces(self.space)]
        shapes = [leaf.shape for leaf in leaves if is_image(leaf)]
        images = zip(self.images, shapes, strict=True)
        return sum(image.num_features(shape) for image, shape in images) + sum(
            num_features(leaf) for leaf in leaves if not is_image(leaf)
        )

    def __call__(self, obs: Any) -> Array:
        images = iter(self.images)
        parts = [
            next(images)(value) if is_image(leaf) else features(leaf, value)
            for leaf, value in leaves_of(self.space, obs)
        ]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def leaves_of(space: Space, obs: Any) -> list[tuple[LeafSpace, Array]]:
    """Each leaf space with its part of an observation, which may have more keys than the space."""
    if isinstance(space, Dict):
        return [pair for key, part in space.items for pair in leaves_of(part, obs[key])]
    return [(space, obs)]


def num_features(space: LeafSpace) -> int:
    """Length of the vector that ``features`` makes."""
    if isinstance(space, MultiDiscrete):
        return sum(space.nvec)
    return space.size if isinstance(space, Box) else space.n


def features(space: LeafSpace, obs: Array) -> Array:
    """One observation as a float vector: integers become one-hot, arrays are flattened."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(obs, space.n, dtype=jnp.float32)
    if isinstance(space, MultiDiscrete):
        each = [jax.nn.one_hot(obs[i], n, dtype=jnp.float32) for i, n in enumerate(space.nvec)]
        return jnp.concatenate(each)
    assert isinstance(space, Box | MultiBinary)
    return obs.astype(jnp.float32).reshape(-1)
