"""The tables of ``trimtab lab``: what is not known is not printed as a number."""

import math
import re

import pytest

from trimtab.cli.lab_tables import figure, interval, print_head, print_within_an_update


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (0.000123456, "1.2e-4"),
        (-0.000123456, "-1.2e-4"),
        (0.0123456, "0.0123"),
        (45.61, "45.6"),
        (12_345.0, "12,300"),
        (math.inf, "∞"),
        (math.nan, "?"),
    ],
)
def test_figures(value, expected):
    assert figure(value) == expected


def test_an_interval_of_nothing_is_a_dash():
    assert interval((math.nan,) * 3) == "–"
    assert interval((2.0, 1.0, math.inf)) == "2 (1–∞)"


def cell(lanes, bias):
    names = ("effective_samples", "variance", "cluster_variance", "covariance")
    figures = {name: [2.0, 1.0, 4.0] for name in (*names, "noise_scale", "signal_to_noise")}
    head = {"zero": False, "figures": {**figures, "cluster_variance": [3.0, 2.0, 5.0]}}
    record = {"checkpoint": "best", "lanes": lanes, "steps": 8, "trace": 0.5}
    return {**record, "update_seconds": 0.002, "heads": {"actor": {**head, "bias": bias}}}


def printed(capsys, *cells):
    moment = {"name": "best", "update": 3, "steps": 96}
    print_head({"cells": list(cells)}, moment, "actor")
    return capsys.readouterr().out


def test_splits_are_columns_and_the_two_variances_are_side_by_side(capsys):
    bias = {"known": True, "cosine": [0.3, 0.2, 0.4], "relative_bias": [0.04, 0.01, 0.09]}
    lines = printed(capsys, cell(4, bias), cell(16, bias)).splitlines()
    assert lines[0] == "actor of best: update 3, 96 steps, λ = 0.5"
    assert lines[1].split()[-2:] == ["4×8", "16×8"]
    rows = {line.split("  ")[0]: line for line in lines}
    assert rows["variance"].endswith("2 (1–4)")
    assert rows["… from single batches"].endswith("3 (2–5)")
    assert rows["bias/gradient"].endswith("0.2 (0.1–0.3)")
    assert rows["ms/update"].endswith("2")


def test_a_gradient_that_is_not_known_is_not_divided_by(capsys):
    bias = {"known": False, "cosine": [math.nan] * 3, "squared_bias": [0.2, -0.2, 0.6]}
    text = printed(capsys, cell(4, bias))
    assert "too small to know" in text
    assert re.search(r"bias²/variance +0\.1 \(-0\.1–0\.3\)", text)
    assert "bias/gradient" not in text


def test_a_bias_within_an_update(capsys):
    print_within_an_update({"surrogate": {"clipping": [-0.04, -0.1, -0.01], "total": [1, 0, 4]}})
    assert capsys.readouterr().out.endswith("update: clipping 0 (0–?), total 1 (0–2)\n")
    print_within_an_update({"surrogate": {"clipping": [math.nan] * 3}})
    assert "do not tell its gradient from nothing" in capsys.readouterr().out
