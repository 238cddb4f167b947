"""Which runs a group has, and what is refused."""

import pytest

from trimtab.algos.settings import PPOSettings
from trimtab.errors import SettingError
from trimtab.training.members import joined_sweep, members_of, read_seeds, read_sweep, sweepable


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0:3", [0, 1, 2]), (":2", [0, 1]), ("5", [5]), ("0,3,5", [0, 3, 5]), ("7,0:2", [7, 0, 1])],
)
def test_seeds(text, seeds):
    assert read_seeds(text) == seeds


def test_sweep():
    assert read_sweep("learning-rate=1e-4, 3e-4") == ("learning_rate", [1e-4, 3e-4])


def test_every_value_meets_every_seed():
    members = members_of(PPOSettings(), [4, 5], {"gamma": [0.9, 0.99], "gae_lambda": [0.5]})
    assert [member.name for member in members] == [
        "gamma=0.9-gae_lambda=0.5-seed-4",
        "gamma=0.9-gae_lambda=0.5-seed-5",
        "gamma=0.99-gae_lambda=0.5-seed-4",
        "gamma=0.99-gae_lambda=0.5-seed-5",
    ]


def test_what_can_be_swept_is_what_a_program_takes_as_data():
    names = sweepable(PPOSettings())
    wanted = {"learning_rate", "gamma", "gae_lambda", "clip_range"}
    assert wanted | {"entropy_coefficient", "value_coefficient"} <= set(names)
    assert not {"epochs", "minibatches", "hidden_sizes", "activation"} & set(names)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a:b", "expected a range such as 0:8"),
        ("", "expected a range"),
        ("8:0", "is empty: in FIRST:END the end is not included"),
        ("3:3", "give 3:11"),
        ("0:1000000000", "at most 10,000"),
        ("0:", "expected a range"),
    ],
)
def test_bad_seeds(text, sentence):
    with pytest.raises(SettingError, match=sentence):
        read_seeds(text)


@pytest.mark.parametrize("text", ["learning-rate", "=1", "learning-rate=", "gamma=a,b", "gamma=1,"])
def test_bad_sweeps(text):
    with pytest.raises(SettingError, match="expected NAME=VALUE,VALUE"):
        read_sweep(text)


@pytest.mark.parametrize(
    ("seeds", "sweep", "sentence"),
    [
        ([], {}, "seeds are empty"),
        ([1, 2, 1], {}, "hold 1 twice"),
        ([-1], {}, "seed = -1 is out of bounds"),
        ([1.5], {}, "seed = 1.5 is not valid"),
        ([0], {"learnin_rate": [1.0]}, "is not known.*Did you mean 'learning_rate'"),
        ([0], {"epochs": [1, 2]}, "'epochs' is not a float of the algorithm"),
        ([0], {"num_envs": [1, 2]}, "'num_envs' is not a float of the algorithm"),
        ([0], {"gamma": []}, "gamma has no values"),
        ([0], {"gamma": [0.9, 2.0]}, "gamma = 2.0 is out of bounds"),
        ([0], {"gamma": [0.9, 0.9]}, "values of gamma hold 0.9 twice"),
        (range(5000), {"gamma": [0.9, 0.8, 0.7]}, "15,000 runs"),
    ],
)
def test_bad_groups(seeds, sweep, sentence):
    with pytest.raises(SettingError, match=sentence):
        members_of(PPOSettings(), seeds, sweep)


def test_a_setting_is_swept_once():
    with pytest.raises(SettingError, match=r"names gamma twice.*gamma=0.9,0.8"):
        joined_sweep([("gamma", [0.9]), ("gamma", [0.8])])
