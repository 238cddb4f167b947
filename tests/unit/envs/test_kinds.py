"""Which general settings an environment gets: the registry's words say what its spaces say."""

import subprocess
import sys
import types

import gymnasium
import pytest

from trimtab.envs.kinds import kind_of, kind_of_entry, kind_of_id
from trimtab.envs.make import make
from trimtab.envs.registry import list_environments
from trimtab.spaces import Box, Dict, Discrete, EnvSpec, MultiBinary, MultiDiscrete

NUMBERS, IMAGE = Box((3,)), Box.of(0, 255, (12, 12, 3), "uint8")


@pytest.mark.parametrize(
    ("observation", "action", "kind"),
    [
        (NUMBERS, Discrete(2), "discrete"),
        (NUMBERS, MultiDiscrete((2, 3)), "discrete"),
        (NUMBERS, Box((1,)), "continuous"),
        (IMAGE, Discrete(2), "image"),
        (IMAGE, Box((1,)), "image"),
        (Dict.of({"camera": IMAGE, "speed": NUMBERS}), Discrete(2), "image"),
        (Discrete(16), Discrete(4), "tabular"),
        (Dict.of({"card": Discrete(10), "flags": MultiBinary(2)}), Discrete(2), "tabular"),
        (Dict.of({"x": Discrete(3), "action_mask": MultiBinary(2)}), Discrete(2), "tabular"),
        (Dict.of({"x": Discrete(3), "y": NUMBERS}), Box((1,)), "continuous"),
    ],
    ids=str,
)
def test_kinds_of_spaces(observation, action, kind):
    assert kind_of(EnvSpec("It-v0", observation, action)) == kind


@pytest.mark.parametrize("entry", list_environments(), ids=lambda entry: entry.id)
def test_the_registry_says_what_the_spaces_say(entry):
    assert kind_of_entry(entry) == kind_of(make(entry.id).spec)


def test_kinds_of_ids():
    assert kind_of_id("Taxi-v4", {}) == "tabular"
    assert kind_of_id("gymnax:Pendulum-v1", {}) == "continuous"
    assert kind_of_id("Probe4-v0", {}) is None  # tries an algorithm as it is
    assert kind_of_id("No-Such-v0", {}) is None
    assert kind_of_id("nobody:CartPole-v1x", {}) is None


class Unmakeable(gymnasium.Env):
    def __init__(self):
        raise RuntimeError("no licence")


class Dial(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))

    def __init__(self, continuous: bool = True):
        spaces = gymnasium.spaces
        self.action_space = spaces.Box(-1, 1, (1,)) if continuous else spaces.Discrete(3)


@pytest.fixture
def registered():
    for name, made in {"KindDial-v0": Dial, "KindUnmakeable-v0": Unmakeable}.items():
        gymnasium.register(name, made)
    yield
    for name in ("KindDial-v0", "KindUnmakeable-v0"):
        gymnasium.registry.pop(name)


@pytest.mark.usefixtures("registered")
def test_an_environment_of_gymnasium_is_asked_itself():
    assert kind_of_id("KindDial-v0", {}) == "continuous"
    assert kind_of_id("gymnasium:KindDial-v0", {"continuous": False}) == "discrete"
    assert kind_of_id("KindUnmakeable-v0", {}) is None  # the run says why it cannot be made


def test_envpool_is_asked_for_its_specification(monkeypatch):
    def make_spec(name: str, **options: object) -> types.SimpleNamespace:
        assert (name, options) == ("Pong-v5", {"stack_num": 2})
        seen = gymnasium.spaces.Box(0, 255, (2, 84, 84), "uint8")
        actions = gymnasium.spaces.Discrete(6)
        return types.SimpleNamespace(observation_space=seen, action_space=actions)

    assert kind_of_id("envpool:No-Such-v5", {}) is None
    monkeypatch.setitem(sys.modules, "envpool", types.SimpleNamespace(make_spec=make_spec))
    assert kind_of_id("envpool:Pong-v5", {"stack_num": 2}) == "image"


def test_the_kind_of_a_known_environment_needs_neither_jax_nor_gymnasium():
    asked = (
        "import sys; from trimtab.configuration import default_configuration as default\n"
        "print(*(default(env, 'ppo').preset.name for env in ('Asterix-MinAtar', 'Taxi-v4')))\n"
        "print('jax' in sys.modules, 'gymnasium' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["image", "tabular", "False", "False"]
