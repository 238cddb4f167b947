"""Other libraries' words: their formulae by hand, round trips, and mistakes."""

import dataclasses

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trimtab.configuration import Configuration, default_configuration
from trimtab.errors import SettingError
from trimtab.explain.dialects import DIALECTS
from trimtab.explain.geometry import Geometry
from trimtab.explain.translate import translated_from, translated_to, word_of

PLAIN = default_configuration("", "ppo")
# The example of a widespread guide, which takes batch_size for num_envs × unroll_length.
GUIDE = {
    "num_timesteps": 20_000_000,
    "num_envs": 2048,
    "unroll_length": 10,
    "num_minibatches": 32,
    "num_updates_per_batch": 4,
    "num_evals": 10,
}


def configured(library: str, words: dict) -> Configuration:
    return PLAIN.with_values(translated_from(library, words).settings, library).checked()


def geometry(library: str, words: dict) -> Geometry:
    return Geometry.of(configured(library, words))


def test_brax_as_it_is_meant() -> None:
    shape = geometry("brax", GUIDE | {"batch_size": 64})
    assert (shape.num_envs, shape.num_steps, shape.batch) == (2048, 10, 20_480)
    assert (shape.minibatch, shape.gradient_steps) == (640, 128)
    assert (shape.updates, shape.total_steps, shape.evaluations) == (981, 20_090_880, 9)


def test_brax_as_the_guide_says_it() -> None:
    shape = geometry("brax", GUIDE | {"batch_size": 20_480})
    assert shape.batch == 6_553_600
    assert (shape.updates, shape.total_steps) == (9, 58_982_400)
    notes = " ".join(translated_from("brax", GUIDE | {"batch_size": 20_480}).notes)
    assert "a widespread guide" in notes
    assert "6,553,600 transitions an iteration; for 20,480 give batch_size = 64" in notes
    assert "58,982,400" in notes


@given(
    num_envs=st.integers(1, 64),
    unrolls=st.integers(1, 8),
    minibatches=st.integers(1, 16),
    unroll_length=st.integers(1, 30),
    repeat=st.integers(1, 4),
    num_evals=st.integers(0, 12),
    num_resets=st.integers(0, 3),
    num_timesteps=st.integers(1, 10**7),
)
def test_brax_formulae(
    num_envs, unrolls, minibatches, unroll_length, repeat, num_evals, num_resets, num_timesteps
) -> None:
    """S = B M T A,  n = ⌈steps / (E R S)⌉,  total = E R n S,  U = B M / N."""
    assume(num_envs * unrolls % minibatches == 0)
    segments = num_envs * unrolls // minibatches
    shape = geometry(
        "brax",
        {
            "num_envs": num_envs,
            "batch_size": segments,
            "num_minibatches": minibatches,
            "unroll_length": unroll_length,
            "action_repeat": repeat,
            "num_evals": num_evals,
            "num_resets_per_eval": num_resets,
            "num_timesteps": num_timesteps,
        },
    )
    iteration = segments * minibatches * unroll_length * repeat
    stretches = max(num_evals - 1, 1) * max(num_resets, 1)
    each = -(-num_timesteps // (stretches * iteration))
    assert shape.total_steps * repeat == stretches * each * iteration
    assert shape.updates == stretches * each
    assert shape.num_steps == unrolls * unroll_length
    assert shape.minibatch == segments * unroll_length
    assert shape.evaluations == max(num_evals - 1, 1)


def test_brax_counts_an_episodes_steps_in_the_environment() -> None:
    words = {"num_timesteps": 10_000, "num_envs": 16, "episode_length": 1000, "action_repeat": 3}
    found = configured("brax", words)
    assert (found.training.max_episode_steps, found.training.action_repeat) == (334, 3)


def test_brax_refuses_what_brax_refuses() -> None:
    with pytest.raises(SettingError, match="must be a multiple of num_envs = 3000"):
        translated_from("brax", {"num_timesteps": 1, "num_envs": 3000})


def test_sb3_and_its_zoo() -> None:
    shape = geometry("sb3", {"total_timesteps": 100_000, "n_envs": 8, "n_steps": 256})
    assert (shape.batch, shape.minibatches, shape.minibatch, shape.epochs) == (2048, 32, 64, 10)
    assert (shape.updates, shape.total_steps) == (49, 100_352)
    assert geometry("sb3", {"n_timesteps": 100_000, "n_envs": 8, "n_steps": 256}) == shape
    with pytest.raises(SettingError, match="are the same: give one"):
        translated_from("sb3", {"n_timesteps": 1, "total_timesteps": 1})


def test_the_critic_of_sb3_has_twice_the_loss() -> None:
    found = configured("sb3", {"total_timesteps": 1, "vf_coef": 0.5})
    assert found.algorithm.value_coefficient == 1.0


def test_an_unequal_last_minibatch_of_sb3() -> None:
    found = translated_from("sb3", {"total_timesteps": 1, "n_steps": 100, "batch_size": 64})
    assert found.settings["minibatches"] == 2
    assert "SB3's last minibatch of 2 is smaller" in found.notes[0]


def test_a_minibatch_of_sb3_over_the_rollout() -> None:
    found = translated_from("sb3", {"total_timesteps": 1, "n_steps": 50, "batch_size": 64})
    assert found.settings["minibatches"] == 1
    assert "over the rollout" in found.notes[0]


def test_cleanrl_and_its_defaults() -> None:
    found = configured("cleanrl", {})
    shape = Geometry.of(found)
    assert (shape.batch, shape.minibatch, shape.gradient_steps) == (512, 128, 16)
    assert (shape.updates, shape.total_steps) == (976, 499_712)  # rounded down
    assert found.algorithm.value_clip_range == 0.2
    assert found.algorithm.learning_rate_schedule == "linear"
    without = configured("cleanrl", {"clip_vloss": False, "anneal_lr": False})
    assert without.algorithm.value_clip_range is None
    assert without.algorithm.learning_rate_schedule == "constant"


CONFIGURATIONS = st.fixed_dictionaries(
    {
        "num_envs": st.integers(1, 64),
        "num_steps": st.integers(1, 64),
        "minibatches": st.integers(1, 16),
        "epochs": st.integers(2, 20),
        "total_steps": st.integers(1, 10**6),
        "learning_rate": st.floats(1e-6, 1.0),
        "gamma": st.floats(0.0, 1.0),
        "gae_lambda": st.floats(0.0, 1.0),
        "clip_range": st.floats(0.01, 1.0),
        "entropy_coefficient": st.floats(0.0, 0.5),
        "value_coefficient": st.floats(0.0, 10.0),
        "max_grad_norm": st.none() | st.floats(0.1, 10.0),
        "advantage_normalization": st.sampled_from(["minibatch", "off"]),
        "seed": st.integers(0, 1000),
        "eval_every": st.integers(0, 5),
    }
)


@pytest.mark.parametrize("library", DIALECTS)
@given(values=CONFIGURATIONS)
def test_there_and_back(library: str, values: dict) -> None:
    assume(values["num_envs"] * values["num_steps"] % values["minibatches"] == 0)
    before = PLAIN.with_values(values, "test")
    theirs = _or_none(library, before)
    assume(theirs is not None)
    again = PLAIN.with_values(translated_from(library, theirs).settings, "test").checked()
    here, there = Geometry.of(before), Geometry.of(again)
    for name in ("num_envs", "num_steps", "epochs", "minibatches", "updates", "gamma"):
        assert getattr(here, name) == getattr(there, name), name
    same = set(values) & {word.ours for word in DIALECTS[library].words}
    for name in same - {"seed"}:
        assert getattr(before.algorithm, name) == getattr(again.algorithm, name), name


def _or_none(library: str, configuration: Configuration) -> dict | None:
    """In Brax's words, minibatches are of whole segments; not every configuration's are."""
    training, minibatches = configuration.training, configuration.algorithm.minibatches
    unrolls = range(1, training.num_steps + 1)
    whole = any(
        training.num_steps % u == 0 and training.num_envs * u % minibatches == 0 for u in unrolls
    )
    if library == "brax" and not whole:
        with pytest.raises(SettingError, match="cannot be said in whole segments"):
            translated_to(library, configuration)
        return None
    return translated_to(library, configuration).settings


def test_what_cannot_be_said_is_named() -> None:
    changes = {"normalize_observations": True, "dual_clip": 3.0, "num_envs": 8}
    notes = translated_to("sb3", PLAIN.with_values(changes, "test")).notes
    assert notes == ["not said in these words: normalize_observations, dual_clip."]
    # What a library always does, whatever is set, is a difference too.
    assert "adam_epsilon" in translated_to("brax", PLAIN).notes[-1]


def test_a_horizon_is_said_as_a_discount() -> None:
    configuration = PLAIN.with_values({"horizon": 200.0}, "test")
    translation = translated_to("cleanrl", configuration)
    assert translation.settings["gamma"] == pytest.approx(0.995)
    assert not any("horizon" in note for note in translation.notes)


def test_words_without_a_counterpart_are_named() -> None:
    notes = translated_from("sb3", {"total_timesteps": 1, "use_sde": True, "device": "cpu"}).notes
    assert notes[-2:] == [
        "use_sde: there is no state-dependent exploration here.",
        "device: give --devices.",
    ]


@pytest.mark.parametrize(
    ("library", "words", "sentence"),
    [
        ("brx", {}, "Did you mean 'brax'?"),
        ("brax", {"num_evns": 1}, "Did you mean 'num_envs'"),
        ("brax", {}, "num_timesteps is missing"),
        ("brax", {"num_timesteps": "many"}, "expected a whole number"),
        ("brax", {"num_timesteps": 0}, "expected 1 or more"),
        ("brax", {"num_timesteps": 1.5}, "expected a whole number"),
        ("sb3", {"total_timesteps": 1, "vf_coef": "lin_0.5"}, "expected a number"),
        ("sb3", {"total_timesteps": 1, "normalize_advantage": 1}, "expected true or false"),
        ("sb3", {"total_timesteps": 1, "gamma": True}, "expected a number"),
        ("cleanrl", {"clip_vloss": "yes"}, "expected true or false"),
        ("cleanrl", {"total_timesteps": 511}, "CleanRL would train nothing"),
    ],
)
def test_mistakes(library: str, words: dict, sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        translated_from(library, words)
    assert sentence in str(caught.value)


def test_only_ppo_without_memory_is_translated() -> None:
    with pytest.raises(SettingError, match="is PPO, and this is a2c"):
        translated_to("sb3", default_configuration("", "a2c"))
    with pytest.raises(SettingError, match="no recurrent policy"):
        translated_to("sb3", PLAIN.with_values({"gru_units": 8}, "test"))
    with pytest.raises(SettingError, match="cannot be split"):
        translated_to("sb3", PLAIN.with_values({"minibatches": 3}, "test"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=20_000_000", 20_000_000),
        ("a=2e7", 2e7),
        ("a=None", None),
        ("a=null", None),
        ("a=True", True),
        ("a=false", False),
        ("a=0.5", 0.5),
        ("a=MlpPolicy", "MlpPolicy"),
    ],
)
def test_words_are_read_as_they_are_written(text: str, value) -> None:
    assert word_of(text) == ("a", value)
    assert type(word_of(text)[1]) is type(value)


def test_every_word_of_ours_is_a_setting() -> None:
    known = {field.name for field in dataclasses.fields(PLAIN.training)}
    known |= {field.name for field in dataclasses.fields(PLAIN.algorithm)}
    for library in DIALECTS.values():
        assert {word.ours for word in library.words} | set(library.always) <= known
