"""Atari: the usual preprocessing around an id of ALE, and what is learned from beside the score."""

import gymnasium
import numpy as np
import pytest

from trimtab.envs import atari
from trimtab.envs.make import find
from trimtab.errors import SettingError, TrimtabError

GAME = "ALE/Breakout-v5"


def test_options_go_to_the_preprocessing_or_to_the_game(monkeypatch):
    monkeypatch.setattr(atari, "_require_packages", lambda _: None)
    found = atari.makers_of(GAME, {"frame_stack": 2, "repeat_action_probability": 0.0})
    assert found is not None
    learned_from, evaluated = found
    assert learned_from.options == evaluated.options == {"repeat_action_probability": 0.0}
    assert learned_from.preprocessing["frame_stack"] == 2
    assert learned_from.preprocessing["clip_rewards"]
    assert not evaluated.preprocessing["clip_rewards"]
    assert not evaluated.preprocessing["terminal_on_life_loss"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"preprocessing": False, "frame_stack": 2}, "frame_stack has no effect"),
        ({"preprocessing": "no"}, "expected true or false"),
        ({"frame_skip": 0}, "frame_skip = 0 is not valid"),
        ({"clip_rewards": 1}, "clip_rewards = 1 is not valid: expected true or false"),
        ({"frameskip": 4}, "Give frame_skip, or preprocessing = false"),
    ],
)
def test_options_without_sense_are_refused(options, words):
    with pytest.raises(SettingError, match=words):
        atari.makers_of(GAME, options)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(atari.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(TrimtabError, match=r"needs the package ale_py.*trimtab\[atari\]"):
        atari.makers_of(GAME, {})


def test_rewards_are_signs():
    assert [atari._sign(reward) for reward in (-7.0, 0.0, 4.0)] == [-1.0, 0.0, 1.0]


def test_a_game_as_it_is_learned_from_and_as_it_is_scored():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    source = find(f"gymnasium:{GAME}")
    assert source.evaluation is not None
    assert source.spec.observation.shape == (4, 84, 84)
    assert source.spec.observation.dtype == "uint8"
    learned_from, scored = source.make_env(), source.evaluation.make_env()
    steps = {}
    for name, env in (("learning", learned_from), ("score", scored)):
        obs, _ = env.reset(seed=3)
        assert obs.dtype == np.uint8
        steps[name] = 0
        ended = False
        while not ended and steps[name] < 400:
            # FIRE puts the ball into play; a paddle that never moves loses it.
            _, _, terminated, truncated, _ = env.step(1)
            ended = terminated or truncated
            steps[name] += 1
        env.close()
    assert steps["learning"] < steps["score"]  # of five lives, the first


def test_a_game_may_be_left_as_it_is():
    pytest.importorskip("ale_py")
    source = find(f"gymnasium:{GAME}", preprocessing=False)
    assert source.evaluation is None
    env = source.make_env()
    assert isinstance(env, gymnasium.Env)
    assert env.observation_space.shape == (210, 160, 3)
    env.close()
