"""Each finding is made on an environment with that one oddity, and on no sound one."""

import dataclasses
import json
import re

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import odd_envs
import pytest

import trimtab
from trimtab.checking import check
from trimtab.cli import main
from trimtab.errors import UnknownEnvironmentError
from trimtab.spaces import Box, Discrete, EnvSpec

ODD = [
    ("RaisesWhenMade", "error", "construction", "OSError: no display"),
    ("Raises", "error", "step", r"step\(\) raised ArithmeticError: the wheels came off"),
    ("NoSpace", "error", "spaces", "no observation_space"),
    ("Words", "error", "spaces", "observation space is Text"),
    ("DictActions", "error", "spaces", "is a dictionary"),
    ("FloatImage", "warning", "spaces", "shape of an image"),
    ("UnboundedAction", "warning", "spaces", "the action has no bounds"),
    ("NoSeed", "error", "reset", "unexpected keyword argument 'seed'"),
    ("OldReset", "error", "reset", r"reset\(\) returned an array"),
    ("OldStep", "error", "step", "a tuple of 4, as in Gym before 0.26"),
    ("NoInfo", "warning", "step", "a NoneType as its info"),
    ("FloatFlags", "warning", "step", "terminated is a int"),
    ("Float64", "warning", "values", "dtype float64; its space says float32"),
    ("Lists", "warning", "values", "the observation is a list, not an array"),
    ("NoReward", "error", "values", "the reward is None"),
    ("ArrayReward", "error", "values", r"the reward is an array of shape \(1,\)"),
    ("NotANumber", "error", "values", r"the observation\[0\] is nan"),
    ("Outside", "error", "values", r"\[1\] is 30.0, outside of its space, -20 to 20"),
    ("WrongShape", "error", "values", r"shape \(3,\); its space has shape \(2,\)"),
    ("Unseeded", "error", "determinism", "made anew, with the same seed: .* once and .* then"),
    ("Remembers", "error", "determinism", "reset again with the same seed: the first observation"),
    ("Fixed", "warning", "seeds", "nothing is random"),
    ("SeedsItself", "warning", "seeds", r"reset\(\) without a seed begins every episode alike"),
    ("Reuses", "warning", "buffers", "its array is reused"),
    ("WritesActions", "warning", "buffers", "writes into the action"),
    ("Endless", "warning", "episodes", "no episode ended within .* no time limit"),
    ("ClockTerminates", "warning", "episodes", "every episode took 12 steps and said terminated"),
    ("OldClock", "error", "episodes", "TimeLimit.truncated, but truncated is False"),
    ("BothFlags", "note", "episodes", "both set"),
    ("LimitedWrongly", "error", "episodes", "took 1[0-9] steps, and its limit is 5"),
    ("Large", "warning", "observation scale", r"\[0\] is about .*e\+03 in size"),
    ("Tiny", "warning", "observation scale", "is at most .* in size"),
    ("Constant", "note", "observation scale", r"\[1\] never changed"),
    ("LargeRewards", "warning", "reward scale", "rewards are about .* in size"),
    ("TinyRewards", "warning", "reward scale", "rewards are at most .* in size"),
    ("NoRewards", "warning", "reward scale", "no reward but 0 in 300 random steps"),
    ("Stutters", "warning", "speed", "one step in a hundred takes .* times as long"),
    ("ForgetsAPart", "error", "values", "the observation has no part 'two'"),
    ("AddsAPart", "warning", "values", "has a part 'three', which is not in its space"),
]


def checked(env, steps=300):
    return trimtab.check_env(env, steps=steps)


@pytest.mark.parametrize(("name", "level", "kind", "words"), ODD, ids=[row[0] for row in ODD])
def test_an_oddity_is_found(name, level, kind, words):
    report = checked(getattr(odd_envs, name))
    found = [one for one in report.findings if (one.level, one.check) == (level, kind)]
    texts = " | ".join(one.what for one in found)
    assert any(re.search(words, one.what) for one in found), report.findings
    assert all(one.advice for one in found), texts
    assert report.ok == (level != "error")
    # One oddity must not be reported as many: at most one other thing follows from it.
    assert len([one for one in report.findings if one.level == "error"]) <= 2, report.findings


def test_nothing_is_found_where_nothing_is_wrong():
    report = checked(odd_envs.Sound)
    assert report.findings == []
    assert "determinism" in report.passed
    assert report.figures["steps"] == 300
    assert report.figures["random_return_mean"] < 0
    assert report.figures["step_seconds_median"] > 0


@pytest.mark.parametrize(
    "env", ["gymnasium:CartPole-v1", "gymnasium:Pendulum-v1", "gymnasium:FrozenLake-v1"]
)
def test_known_good_environments_have_no_errors(env):
    report = checked(env)
    assert report.ok
    assert {one.check for one in report.findings} <= {"reward scale"}


def test_a_hang_is_ended(monkeypatch):
    for env, kind in ((odd_envs.Hangs, "step"), (odd_envs.HangsWhenMade, "construction")):
        monkeypatch.setattr(check, "effort_of", lambda *_: check.Effort(deadline=0.2))
        report = check.check_env(env)
        errors = [one for one in report.errors if one.check == kind]
        assert any("took longer than 0.2 s" in one.what for one in errors), report.findings


def test_a_vector_environment_is_played_as_it_is():
    report = checked(gymnasium.make_vec("CartPole-v1", num_envs=3))
    assert report.figures["steps"] == 900
    assert report.ok, report.findings


# ------------------------------------------------------------------------------ JAX


@dataclasses.dataclass(frozen=True)
class Guess:
    """Sound; ``odd`` is what is wrong with others."""

    odd: str = ""
    spec: EnvSpec = EnvSpec("Guess-v0", Box((1,), (-9.0,), (9.0,)), Discrete(2), 10)

    def reset(self, key):
        number = jax.random.normal(key, (1,))
        return (number, jnp.int32(0)), number

    def step(self, key, state, action):
        number, count = state
        reward = jnp.where((action == 1) == (number[0] > 0), 1.0, 0.0)
        following = jax.random.normal(key, (1,))
        count = count + jnp.int32(1)
        over = count >= (14 if self.odd == "limit" else 10)
        if self.odd == "if" and number[0] > 0:
            reward = -reward
        if self.odd == "impure":
            reward = reward + jnp.float32(np.random.random())
        if self.odd == "nan":
            following = jnp.where(count == 5, jnp.nan, following)
        obs = following.astype(jnp.float16) if self.odd == "dtype" else following
        after = (following, count.astype(jnp.float32) if self.odd == "state" else count)
        flag = over.astype(jnp.int32) if self.odd == "flag" else over
        return after, trimtab.Transition(obs, reward, jnp.bool_(False), flag)


JAX = [
    ("if", "step", r"step\(\) cannot be compiled: Tracer"),
    ("state", "step", r"the state\[1\] is one float32 after a step, and one int32 after reset"),
    ("dtype", "step", r"the observation is float16\[1\]; its space is float32\[1\]"),
    ("flag", "step", "its truncated is one int32"),
    ("impure", "determinism", "made anew, with the same seed: the reward"),
    ("nan", "values", r"the observation\[0\] is nan"),
    ("limit", "episodes", "an episode took 14 steps, and its limit is 10"),
]


@pytest.mark.parametrize(("odd", "kind", "words"), JAX, ids=[row[0] for row in JAX])
def test_an_oddity_of_a_jax_environment_is_found(odd, kind, words):
    report = checked(Guess(odd), steps=60)
    assert any(one.check == kind and re.search(words, one.what) for one in report.errors), (
        report.findings
    )


def test_a_sound_jax_environment_passes():
    assert checked(Guess(), steps=60).findings == []
    report = checked("CartPole-v1", steps=60)
    assert report.ok
    assert report.figures["steps"] == 480


# ------------------------------------------------------------------------------ the command


def test_exit_codes_say_how_it_is(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gymnasium.register("Float64-v0", entry_point=odd_envs.Float64)
    gymnasium.register("Outside-v0", entry_point=odd_envs.Outside)
    monkeypatch.setenv("COLUMNS", "200")
    try:
        assert main(["check-env", "gymnasium:Float64-v0", "--steps", "200"]) == 0
        out = capsys.readouterr().out
        assert "! warning" in out
        assert "0 errors, 1 warning: it can be trained on" in out
        assert main(["check-env", "gymnasium:Outside-v0", "--steps", "200", "--json"]) == 1
        report = json.loads(capsys.readouterr().out)
        assert report["errors"] == 1
        assert report["findings"][0]["where"].startswith("step 5 of episode 1")
    finally:
        del gymnasium.registry["Float64-v0"], gymnasium.registry["Outside-v0"]
    assert main(["check-env", "CartPol-v1"]) == 2
    assert "Did you mean 'CartPole-v1'" in capsys.readouterr().err
    with pytest.raises(UnknownEnvironmentError):
        trimtab.check_env({})
