"""Names: what they make, and the sentence for those that make nothing."""

import json
import subprocess
import sys

import pytest

from trimtab.envs import list_environments, make
from trimtab.errors import SettingError, UnknownEnvironmentError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPole", "There is no environment 'CartPole'. Did you mean 'CartPole-v1'?"),
        ("gymnax:CartPol-v1", "no environment 'gymnax:CartPol-v1'. Did you mean 'CartPole-v1'? "),
        ("Taxi-v3", "Did you mean 'Taxi-v4'?"),
        ("zzzzzzzz", "no environment 'zzzzzzzz'. `trimtab envs` lists those there are."),
        ("", "There is no environment ''."),
        ("gymnx:CartPole-v1", "no backend 'gymnx'. Did you mean 'gymnax'?"),
        ("my_module:Env-v0", "imports nothing because an id says so; give --import my_module"),
        ("tabular:CartPole-v1", "tabular does not provide 'CartPole-v1'; gymnax does"),
        ("brax:ant", "pip install 'trimtab[brax]'"),
        ("playground:CheetahRun", "pip install 'trimtab[playground]'"),
        ("envpool:Pong-v5", "pip install 'trimtab[envpool]'"),
        ("gymnasium:CartPole-v1", "gymnasium.make('CartPole-v1') makes one to step by hand"),
        ("gymnasium:CartPol-v1", "Gymnasium has no environment 'CartPol-v1'. Did you mean"),
        # Its images are downloaded when it is made, so it is not in the table.
        ("MNISTBandit-bsuite", "There is no environment 'MNISTBandit-bsuite'."),
        ([1, 2], "or an object with spec, reset and step; a list has no spec"),
        (None, "a NoneType has no spec"),
    ],
)
def test_unknown_names_get_a_sentence(name, message: str) -> None:
    with pytest.raises(UnknownEnvironmentError) as caught:
        make(name)
    assert message in str(caught.value)


def test_backends() -> None:
    assert make("FrozenLake-v1").spec.observation == make("FrozenLake-misc").spec.observation
    assert type(make("FrozenLake-v1")).__name__ == "TabularEnv"
    assert type(make("gymnax:FrozenLake-misc")).__name__ == "GymnaxEnv"
    assert {entry.backend for entry in list_environments()} == {"gymnax", "tabular", "probe"}


def test_an_environment_is_returned_as_it_is() -> None:
    env = make("Probe1-v0")
    assert make(env) is env
    with pytest.raises(SettingError, match="Probe1-v0 is made already; the options gravity"):
        make(env, gravity=1.0)


def test_the_table_and_mistakes_need_neither_jax_nor_a_simulator() -> None:
    program = """
import json, sys
from trimtab.envs import list_environments, make
from trimtab.errors import UnknownEnvironmentError
try:
    make("CartPole")
except UnknownEnvironmentError:
    heavy = {"jax", "numpy.random", "gymnax", "gymnasium"} & set(sys.modules)
    print(json.dumps([len(list_environments()), sorted(heavy)]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [len(list_environments()), []]
