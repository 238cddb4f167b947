"""The sentence says no more than the intervals support."""

import pytest

from trimtab.lab.advice import advise


def cell(lanes, steps, variance, spread=1.1, bias=None, seconds=0.01):
    """A cell whose intervals reach from value / spread to value × spread."""

    def estimate(value):
        return [value, value / spread, value * spread]

    record = {"zero": False, "figures": {"variance": estimate(variance)}}
    if bias is not None:
        record["bias"] = {"squared_error": estimate(variance + bias)}
    return {
        "lanes": lanes,
        "steps": steps,
        "update_seconds": seconds,
        "heads": {"actor": record},
    }


def test_a_difference_that_the_intervals_show_is_named_with_its_reason():
    cells = [cell(4, 32, 4.0, bias=0.1), cell(32, 4, 1.0, bias=0.1)]
    advice = advise(cells, 200)
    assert advice.split == "32×4"
    assert advice.sentence.startswith(
        "32×4: the squared error of the actor's gradient is 3.7 times"
    )
    assert "because it varies less" in advice.sentence


def test_less_bias_is_a_reason_too_and_time_is_told():
    cells = [cell(4, 32, 1.0, bias=0.1, seconds=0.02), cell(32, 4, 1.0, bias=5.0)]
    advice = advise(cells, 200)
    assert advice.split == "4×32"
    assert "because it is less biased" in advice.sentence
    assert "Its updates take 2.0 times as long." in advice.sentence


def test_without_a_truth_variances_are_compared():
    advice = advise([cell(4, 32, 4.0), cell(32, 4, 1.0)], 200)
    assert "the variance of the actor's gradient" in advice.sentence


def test_no_difference_is_an_answer():
    cells = [cell(4, 32, 1.2, spread=1.5), cell(32, 4, 1.0, spread=1.5, seconds=0.001)]
    advice = advise(cells, 200)
    assert advice.split is None
    assert "no difference in the variance of the actor's gradient that 200" in advice.sentence
    assert advice.sentence.endswith("An update is fastest with 32×4.")


def test_times_that_hardly_differ_are_not_told():
    cells = [cell(4, 32, 1.0, spread=1.5, seconds=0.0105), cell(32, 4, 1.0, spread=1.5)]
    assert "fastest" not in advise(cells, 200).sentence


def test_intervals_are_widened_for_the_number_of_comparisons():
    pair = [cell(4, 32, 1.22, spread=1.13), cell(32, 4, 1.0, spread=1.13)]
    assert advise(pair, 200).split == "32×4"
    many = [*pair, *(cell(8, 16, 1.22, spread=1.13) for _ in range(6))]
    assert advise(many, 200).split is None


def test_those_that_cannot_be_told_from_the_best_are_named():
    cells = [cell(4, 32, 9.0), cell(8, 16, 1.02), cell(32, 4, 1.0)]
    assert "8×16 cannot be told from it." in advise(cells, 200).sentence


@pytest.mark.parametrize("heads", [{}, {"actor": {"zero": True}}])
def test_nothing_to_compare(heads):
    advice = advise([{"lanes": 4, "steps": 8, "heads": heads}], 200)
    assert advice.sentence == "There is no gradient here to compare."
