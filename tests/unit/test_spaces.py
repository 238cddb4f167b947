"""Spaces: elements, trees, and actions as environments want them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.errors import UnsupportedSpaceError
from trimtab.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    is_image,
    leaf_spaces,
    map_space,
    mask_space,
    num_bytes,
    to_environment,
    without_mask,
    zeros,
)

NESTED = Dict.of(
    {
        "screen": Box.of(0, 255, (8, 8, 3), "uint8"),
        "arm": Dict.of({"angles": Box((2,)), "gripper": MultiBinary(3)}),
        "action_mask": MultiBinary(4),
    }
)


@pytest.mark.parametrize(
    ("space", "shape", "dtype", "size"),
    [
        (Discrete(5), (), "int32", 4),
        (MultiDiscrete((3, 4)), (2,), "int32", 8),
        (MultiBinary(6), (6,), "int8", 6),
        (Box((2, 3)), (2, 3), "float32", 24),
        (Box.of(0, 255, (4, 4, 1), "uint8"), (4, 4, 1), "uint8", 16),
    ],
)
def test_elements_of_each_space(space, shape, dtype, size):
    element = zeros(space)
    assert (element.shape, element.dtype, num_bytes(space)) == (shape, dtype, size)
    assert space.shape == shape
    assert hash(space) == hash(dataclasses.replace(space))


def test_elements_of_nested_dictionaries():
    assert jax.tree.map(np.shape, zeros(NESTED)) == {
        "screen": (8, 8, 3),
        "arm": {"angles": (2,), "gripper": (3,)},
        "action_mask": (4,),
    }
    assert num_bytes(NESTED) == 8 * 8 * 3 + 2 * 4 + 3 + 4
    assert hash(NESTED) == hash(Dict(NESTED.items))
    paths = [path for path, _ in leaf_spaces(NESTED)]
    assert paths == ["screen", "arm/angles", "arm/gripper", "action_mask"]


def test_mapping_over_a_tree_meets_each_leaf_with_its_values():
    doubled = map_space(
        lambda space, value: (str(space), value * 2), NESTED["arm"], zeros(NESTED["arm"])
    )
    assert doubled["gripper"][0] == "MultiBinary(3)"
    assert doubled["angles"][1].shape == (2,)


def test_the_mask_is_apart():
    assert mask_space(NESTED) == MultiBinary(4)
    assert mask_space(Box((2,))) is None
    assert mask_space(NESTED["arm"]) is None
    assert without_mask(NESTED).keys == ("screen", "arm")
    assert without_mask(Box((2,))) == Box((2,))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Box.of(0, 255, (84, 84, 4), "uint8"), True),
        (Box.of(0.0, 1.0, (10, 10, 4)), True),  # MinAtar's
        (Box((10, 10, 4)), False),
        (Box.of(0, 255, (84, 84), "uint8"), False),
        (Discrete(3), False),
    ],
)
def test_images_are_recognised(space, expected):
    assert is_image(space) is expected


INF = np.inf
MIXED = Box.of([0.0, -INF, -1.0, -INF, -3e38], [10.0, 5.0, INF, INF, 3e38], (5,))


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
@pytest.mark.parametrize(
    ("space", "given", "expected"),
    [
        (Box.of(-2.0, 2.0, (3,)), [0.0, 0.5, -7.0], [0.0, 1.0, -2.0]),
        (Box.of([0.0, 10.0], [1.0, 20.0], (2,)), [-1.0, 0.5], [0.0, 17.5]),
        # Bounded: scaled. One bound: clipped to it. None: left alone, and so is the enormous one.
        (MIXED, [0.0, 8.0, -8.0, 8.0, 8.0], [5.0, 5.0, -1.0, 8.0, 8.0]),
        (MIXED, [3.0, 2.0, 2.0, -1e9, -8.0], [10.0, 2.0, 2.0, -1e9, -8.0]),
        (Box((2,)), [1e6, -3.0], [1e6, -3.0]),
    ],
)
def test_actions_of_boxes(array, space, given, expected):
    action = array(np.asarray(given, np.float32))
    result = to_environment(space, action)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_actions_never_pass_the_bounds():
    space = Box.of([-0.1, 1 / 3], [0.3, 0.7], (2,))
    low, high = space.bounds()
    for end in (-1.0, 1.0):
        action = np.asarray(to_environment(space, np.full(2, end, np.float32)))
        assert ((low <= action) & (action <= high)).all()


@pytest.mark.parametrize("space", [Discrete(3), MultiDiscrete((2, 2)), MultiBinary(2)])
def test_other_actions_are_left_alone(space):
    action = zeros(space)
    assert to_environment(space, action) is action


def test_dictionary_actions_are_refused():
    with pytest.raises(UnsupportedSpaceError, match=r"Dict\(move: Discrete\(2\)\).*Wrap"):
        to_environment(Dict.of({"move": Discrete(2)}), {"move": 0})
