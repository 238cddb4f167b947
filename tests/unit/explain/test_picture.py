"""What is drawn fits a terminal, and shows the shape that it is of."""

import collections
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.configuration import default_configuration
from trimtab.explain.geometry import Geometry
from trimtab.explain.picture import ASCII, BOXES, assignment, picture
from trimtab.explain.svg import svg


def geometry(**settings) -> Geometry:
    return Geometry.of(default_configuration("", "ppo").with_values(settings, "test"))


SHAPES = st.builds(
    geometry,
    num_envs=st.integers(1, 200_000),
    num_steps=st.integers(1, 10_000),
    minibatches=st.integers(1, 5_000),
    epochs=st.integers(1, 1000),
    total_steps=st.integers(1, 10**12),
    gru_units=st.none() | st.just(8),
)


@given(shape=SHAPES, ink=st.sampled_from([BOXES, ASCII]))
def test_it_fits_eighty_columns(shape: Geometry, ink) -> None:
    lines = picture(shape, ink)
    assert max(map(len, lines)) < 80
    assert len(lines) <= 14


@given(shape=SHAPES)
def test_without_boxes_it_is_ascii(shape: Geometry) -> None:
    assert all(line.isascii() for line in picture(shape, ASCII))


def test_small_shapes_are_drawn_whole() -> None:
    lines = picture(geometry(num_envs=2, num_steps=4, minibatches=2, epochs=1))
    assert lines == [
        "   rollout             minibatches   update",
        "   2 lanes × 4 steps   2 of 4        1 of 62,500",
        "  ┌────┐               ┌────────┐    ┌──┐",
        "0 │░▒▒░│             → │░░░░░░░░│  → │░▒│ epoch 1",
        "1 │░▒▒░│               │▒▒▒▒▒▒▒▒│    └──┘",
        "  └────┘               └────────┘    = 2",
        "   = 8 transitions                   gradient steps",
    ]


@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 32),
    minibatches=st.integers(1, 64),
)
def test_each_minibatch_has_an_equal_part(rows: int, columns: int, minibatches: int) -> None:
    shape = geometry(num_envs=rows, num_steps=columns, minibatches=minibatches)
    cells = [cell for row in assignment(shape, rows, columns) for cell in row]
    counts = collections.Counter(cells)
    assert len(cells) == rows * columns
    assert max(counts.values()) - min(counts.values()) <= 1


def test_lanes_of_a_recurrent_policy_stay_whole() -> None:
    shape = geometry(num_envs=8, num_steps=16, minibatches=4, gru_units=8)
    rows = assignment(shape, 8, 16)
    assert all(len(set(row)) == 1 for row in rows)
    assert collections.Counter(row[0] for row in rows) == dict.fromkeys(range(4), 2)


@given(shape=SHAPES)
def test_the_svg_is_well_formed_and_within_its_frame(shape: Geometry) -> None:
    root = ElementTree.fromstring(svg(shape, "PPO on <A & B>"))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        if "x" in box.attrib:
            assert float(box.attrib["x"]) + float(box.attrib["width"]) <= width
            assert float(box.attrib["y"]) + float(box.attrib["height"]) <= height


@pytest.mark.parametrize("minibatches", [1, 4, 8])
def test_the_svg_says_the_numbers(minibatches: int) -> None:
    shape = geometry(minibatches=minibatches)
    words = " ".join(ElementTree.fromstring(svg(shape, "PPO")).itertext())
    assert f"{shape.batch:,} transitions" in words
    assert f"{shape.gradient_steps:,} gradient steps" in words
    assert f"{shape.total_steps:,} steps" in words
