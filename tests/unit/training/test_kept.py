"""Programs that a process keeps for the next: the same bits, and none that might be another."""

import dataclasses
import os
import sys

import jax
import numpy as np
import pytest

from trimtab.algos.ppo import PPO
from trimtab.training import kept
from trimtab.training.config import TrainSettings
from trimtab.training.devices import DevicePlan
from trimtab.training.kept import KeptPrograms, description_of, make_room, stamp
from trimtab.training.session import assembled, told_its_length

STEP = ("step",)
ALGORITHM = PPO(hidden_sizes=(4,), minibatches=1, epochs=1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "trimtab" / "kept"


def session_of(steps, env="Probe5-v0", algorithm=ALGORITHM, devices=1, **options):
    settings = TrainSettings(num_envs=4, num_steps=steps, total_steps=100 * steps, eval_episodes=2)
    return assembled(env, algorithm, settings, DevicePlan(devices, False), options)


def outcome(session):
    """All numbers after two updates, and of an evaluation."""
    run, programs = session.compile()
    run, metrics = programs.step(session.algorithm, run, np.int32(2))
    learner = run.learner.parameters.vector, run.learner.optimiser.square
    return [*map(np.asarray, learner), *map(np.asarray, metrics.values())]


def forbid_tracing(monkeypatch, session):
    def refuse(name):
        raise AssertionError(f"{name} is lowered")

    monkeypatch.setattr(session._programs, "_lower", refuse)


@pytest.mark.parametrize("devices", [1, 2])
def test_the_next_process_takes_programs_up_and_gets_the_same_bits(folder, monkeypatch, devices):
    # Another network for each, since what JAX's cache has is not kept again.
    algorithm = dataclasses.replace(ALGORITHM, hidden_sizes=(8 + devices,))
    first = outcome(session_of(6, devices=devices, algorithm=algorithm))
    kinds = {path.name.partition("-")[0] for path in folder.iterdir()}
    assert kinds == {"begin", "evaluate", "step"}
    again = session_of(6, devices=devices, algorithm=algorithm)
    forbid_tracing(monkeypatch, again)
    again.check()  # shapes are known without tracing
    for a, b in zip(first, outcome(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_number_is_the_same_program_and_another_size_is_not(folder):
    def path(steps=6, **changes):
        session = session_of(steps, **changes)
        return session._programs._path(session._step_name)

    faster = dataclasses.replace(ALGORITHM, learning_rate=0.5)
    assert path() == path(algorithm=faster)
    larger = dataclasses.replace(ALGORITHM, hidden_sizes=(5,))
    more_epochs = dataclasses.replace(ALGORITHM, epochs=2)
    clipping_values = dataclasses.replace(ALGORITHM, value_clip_range=0.2)
    others = [path(algorithm=one) for one in (larger, more_epochs, clipping_values)]
    assert path() not in [*others, path(steps=7), path(env="Probe4-v0")]


def programs(factor):
    """A small program, another for each test: what JAX's cache has is not kept again."""
    lowered = jax.jit(lambda x: x * factor).lower(np.float32(0))
    return KeptPrograms("described", lambda name: lowered)


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "pickle"])
def test_a_damaged_file_is_compiled_anew(folder, damage):
    factor = {"bit": 3.5, "cut": 4.5, "empty": 5.5, "pickle": 6.5}[damage]
    programs(factor).all_of([STEP])
    assert programs(factor).kept(STEP)(np.float32(2)) == 2 * factor
    (path,) = folder.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[len(content) // 2] ^= 1
    kind = {"bit": content, "cut": content[:-5], "empty": b"", "pickle": b"\x80\x04."}
    path.write_bytes(kind[damage])
    again = programs(factor)
    assert again.kept(STEP) is None
    assert not path.exists()
    assert again.all_of([STEP])[0](np.float32(2)) == 2 * factor


def test_a_file_of_another_owner_is_left_alone(folder, monkeypatch):
    programs(7.5).all_of([STEP])
    monkeypatch.setattr(os, "getuid", lambda: -1)
    monkeypatch.setattr(kept.pickle, "loads", lambda content: pytest.fail("it was opened"))
    assert programs(7.5).kept(STEP) is None
    assert list(folder.iterdir())


def test_nothing_is_kept_of_what_may_be_another_thing_tomorrow(folder, monkeypatch):
    assert session_of(14).origin is not None
    of_an_object = session_of(14, env=session_of(14).env)
    assert of_an_object.origin is None
    assert of_an_object._programs._folder is None

    class Own(PPO):
        """Somebody's algorithm."""

    assert description_of((), Own(), "settings") is None
    assert description_of((), ALGORITHM, "settings") is not None
    monkeypatch.setattr(sys.modules["trimtab.envs.make"], "_imported", ["a_package"])
    assert session_of(14).origin is None


def test_nothing_is_kept_where_caches_are_off(folder, monkeypatch):
    monkeypatch.setenv("TRIMTAB_CACHE", "off")
    programs(8.5).all_of([STEP])
    assert not folder.exists()


def test_lanes_that_hold_something_else_have_another_step(folder):
    whole = session_of(16, env="CartPole-v1")
    staggered = dataclasses.replace(whole.settings, staggered_starts="on")
    assert whole._step_name != dataclasses.replace(whole, settings=staggered)._step_name


def test_a_watched_algorithm_counts_as_ours(folder):
    settings = TrainSettings(num_envs=2, num_steps=16, total_steps=64, lab_every=2)
    session = assembled("Probe5-v0", ALGORITHM, settings, DevicePlan(1, False), {})
    assert description_of((), session.algorithm, ()) is not None
    plain = told_its_length(ALGORITHM, settings)
    assert description_of((), session.algorithm, ()) != description_of((), plain, ())


def test_a_changed_source_is_another_stamp(tmp_path, monkeypatch):
    package = tmp_path / "some_package_of_mine"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "module.py").write_text("A = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = stamp("some_package_of_mine")
    assert stamp("some_package_of_mine") == before
    (package / "inner" / "module.py").write_text("A = 22")
    assert stamp("some_package_of_mine") != before


def test_settings_of_jax_count(monkeypatch):
    before = description_of((), ALGORITHM, ())
    with jax.default_matmul_precision("highest"):
        assert description_of((), ALGORITHM, ()) != before
    monkeypatch.setenv("XLA_FLAGS", "--another")
    assert description_of((), ALGORITHM, ()) != before


def test_room_is_made_by_what_was_not_used_for_longest(tmp_path):
    for age, name in enumerate(["newest", "middle", "oldest"]):
        (tmp_path / name).write_bytes(b"x" * 10)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    make_room(tmp_path, most=20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["middle", "newest"]


def test_without_a_description_programs_are_compiled(folder):
    lowered = jax.jit(lambda x: x + 1).lower(np.float32(0))
    programs = KeptPrograms(None, lambda name: lowered)
    assert programs.kept(("one",)) is None
    assert programs.all_of([("one",)])[0](np.float32(1)) == 2
    assert programs.kept(("one",)) is not None  # of this process
    assert not folder.exists()
