"""What metrics are called elsewhere."""

import math

import pytest

from trimtab.log.names import evaluation_names, translated

ROW = {
    "update": 3,
    "steps": 3072,
    "rollout/return_mean": 20.5,
    "rollout/return_max": math.nan,
    "train/value_loss": 4.0,
    "train/entropy": 0.6,
    "train/grad_norm": 0.5,
}


def test_our_own_names_are_left_alone_and_gaps_are_left_out() -> None:
    expected = {name: value for name, value in ROW.items() if name != "rollout/return_max"}
    assert translated(ROW, "trimtab") == expected


@pytest.mark.parametrize(
    ("scheme", "name", "value"),
    [
        ("sb3", "rollout/ep_rew_mean", 20.5),
        ("sb3", "time/total_timesteps", 3072),
        ("sb3", "train/value_loss", 8.0),  # a mean squared error, without the half
        ("sb3", "train/entropy_loss", -0.6),
        ("cleanrl", "charts/episodic_return", 20.5),
        ("cleanrl", "losses/value_loss", 4.0),
        ("cleanrl", "losses/entropy", 0.6),
        ("brax", "training/v_loss", 2.0),
    ],
)
def test_theirs_are_the_same_quantity(scheme, name, value) -> None:
    assert translated(ROW, scheme)[name] == pytest.approx(value)


@pytest.mark.parametrize("scheme", ["sb3", "cleanrl", "brax"])
def test_what_they_do_not_record_keeps_our_name(scheme) -> None:
    assert translated(ROW, scheme)["train/grad_norm"] == 0.5


def test_no_two_metrics_share_a_name() -> None:
    from trimtab.log.names import _THEIRS

    for names in _THEIRS.values():
        theirs = [name for name, _ in names.values()]
        assert len(theirs) == len(set(theirs))


def test_evaluations() -> None:
    row = evaluation_names({"update": 1, "steps": 10, "mean": 9.0, "length_mean": 4.0})
    assert translated(row, "sb3") == {"eval/mean_reward": 9.0, "eval/mean_ep_length": 4.0}
