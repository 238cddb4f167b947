"""Random configurations: each either trains an update, or is refused in a sentence.

Most examples are traced and not compiled: what could fail has failed by then.
"""

import dataclasses
import math
from typing import Any, Literal, get_args, get_origin

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import trimtab
from trimtab.algos.settings import ALGORITHMS
from trimtab.api import make_session
from trimtab.configuration import default_configuration
from trimtab.envs.make import make
from trimtab.envs.space_probes import ACTIONS, OBSERVATIONS, space_probe
from trimtab.errors import TrimtabError
from trimtab.settings import Bounds, field_types, setting_names
from trimtab.training.config import TrainSettings
from trimtab.training.devices import DevicePlan
from trimtab.training.evaluate import make_evaluator
from trimtab.training.step import make_step

# Settings of the run that change what is computed; others are about files, workers and trackers.
OF_RUN = (
    "seed",
    "total_steps",
    "num_envs",
    "num_steps",
    "action_repeat",
    "max_episode_steps",
    "staggered_starts",
    "eval_every",
    "eval_count",
    "eval_from_return",
    "eval_episodes",
    "eval_stochastic",
    "checkpoint_every",
    "lab_every",
)
SMALL = {"num_envs": 2, "num_steps": 4, "eval_episodes": 2, "total_steps": 8, "minibatches": 2}
NAMES = ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Probe5-v0", "Acrobot-v1"]
PROBES = [
    f"{observation}/{action}"
    for observation in OBSERVATIONS
    for action in ACTIONS
    if observation != "masked" or action == "discrete"
]
WRONG = (
    st.sampled_from(
        [
            "",
            "none",
            "many",
            True,
            None,
            -1,
            0,
            1,
            10**30,
            -(10**30),
            1e300,
            0.5,
            [],
            [0],
            ["public"],
        ]
    )
    | st.floats()
)


def numbers_within(bounds: Bounds, whole: bool) -> st.SearchStrategy:
    """What a person would try: numbers of every size that the bounds admit, and their edges."""
    limits = [getattr(bounds, field.name) for field in dataclasses.fields(bounds)]
    edges = [limit for limit in limits if limit is not None]
    sizes = [10.0**power for power in range(-6, 7)] + [0.0, 0.5, 0.9, 2.0, 3.0, 5.0]
    candidates = [*edges, *sizes, *(-size for size in sizes)]
    if whole:
        candidates = [int(one) for one in candidates if float(one).is_integer() and one <= 8]
    admitted = sorted({one for one in candidates if bounds.admit(one)})
    return st.sampled_from(admitted or [1])


def valid_for(kind: Any, bounds: Bounds) -> st.SearchStrategy:
    """Values that the setting admits by itself, small where they are sizes."""
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple:
        part = get_args(kind)[0]
        if part is str:
            return st.lists(st.sampled_from(["public", "private", "eyes", "arm"]), max_size=2)
        return st.lists(valid_for(part, bounds), max_size=3)
    if kind is bool:
        return st.booleans()
    if kind in (int, float):
        return numbers_within(bounds, whole=kind is int)
    parts = [part for part in get_args(kind) if part is not type(None)]
    return st.none() | st.one_of([valid_for(part, bounds) for part in parts])


def fields_of(cls: type) -> list[dataclasses.Field]:
    named = {field.name: field for field in dataclasses.fields(cls)}
    return [named[name] for name in setting_names(cls())]


@st.composite
def configurations(draw: Any) -> tuple[str, str, dict[str, Any]]:
    """An environment, an algorithm, and settings of which nearly all are valid by themselves."""
    name = draw(st.sampled_from(sorted(ALGORITHMS)))
    env = draw(st.sampled_from(NAMES) | st.sampled_from(PROBES))
    own, run = ALGORITHMS[name], TrainSettings
    fields = [*fields_of(own), *[one for one in fields_of(run) if one.name in OF_RUN]]
    kinds = field_types(own) | field_types(run)
    chosen = draw(st.lists(st.sampled_from(fields), max_size=3, unique_by=lambda one: one.name))
    values = {}
    for field in chosen:
        valid = valid_for(kinds[field.name], field.metadata["bounds"])
        values[field.name] = draw(WRONG if draw(st.integers(0, 15)) == 0 else valid)
    if draw(st.integers(0, 30)) == 0:
        values["learning_rat"] = 0.1
    return env, name, values


def environment(env: str) -> Any:
    return space_probe(*env.split("/"), length=2) if "/" in env else make(env)


def configured(env: str, name: str, values: dict[str, Any]) -> tuple[Any, Any]:
    """The environment and a configuration that is checked, over small defaults."""
    made = environment(env)
    own = field_types(ALGORITHMS[name])
    small = {
        key: value
        for key, value in {**SMALL, "hidden_sizes": [4]}.items()
        if key in own or key in OF_RUN
    }
    # The defaults and not a preset: what is tuned for an environment would rule out too much.
    plain = default_configuration(f"{env}-untuned", name).with_values(small, "the test")
    plain = dataclasses.replace(plain, env_id=made.spec.id)
    return made, plain.with_values(values, "given").checked()


def refusal(error: TrimtabError) -> str:
    """What was said, which must be a sentence and not a traceback in disguise."""
    words = str(error)
    if len(words) < 20 or "Traceback" in words or words.rstrip()[-1] not in ".?)":
        pytest.fail(f"not a sentence: {words!r}")
    return words


def traced(env: str, name: str, values: dict[str, Any]) -> str:
    """Trace an update and an evaluation; or why that was refused."""
    try:
        made, configuration = configured(env, name, values)
        session = make_session(configuration, made, DevicePlan(1, single_thread=False))
        training = configuration.training
        step = make_step(session.env, training.num_steps, session.schedule.capacity, None)
        count = jax.ShapeDtypeStruct((), np.int32)
        after, metrics = jax.eval_shape(step, session.algorithm, session.template, count)
        assert jax.tree.structure(after) == jax.tree.structure(session.template)
        assert "train/policy_loss" in metrics
        evaluate = make_evaluator(session.env, training.eval_episodes, True)
        jax.eval_shape(evaluate, session.algorithm, after.learner, session.root)
    except TrimtabError as error:
        return refusal(error)
    return "traced"


QUIETLY = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


@settings(max_examples=40, **QUIETLY)
@given(configuration=configurations())
@example(configuration=("CartPole-v1", "ppo", {"hidden_sizes": [65_536] * 4}))
@example(configuration=("CartPole-v1", "a2c", {"num_envs": 10**9, "num_steps": 10**9}))
@example(configuration=("CartPole-v1", "ppo", {"hidden_sizes": [], "trunk": "shared"}))
@example(configuration=("Pendulum-v1", "reinforce", {"gru_units": 3, "normalize_rewards": True}))
@example(configuration=("dict/box", "ppo", {"normalize_observations": True, "lab_every": 1}))
def test_any_configuration_is_traced_or_refused(configuration):
    assert traced(*configuration)


@pytest.mark.slow
@settings(max_examples=1500, **QUIETLY)
@given(configuration=configurations())
def test_any_of_many_configurations_is_traced_or_refused(configuration):
    assert traced(*configuration)


def test_most_configurations_are_not_refused():
    """Else the property above would say little."""
    found = []

    @settings(max_examples=40, database=None, **QUIETLY)
    @given(configuration=configurations())
    def look(configuration):
        try:
            configured(*configuration)
        except TrimtabError:
            found.append(False)
        else:
            found.append(True)

    look()
    assert sum(found) > len(found) / 3


def trains_or_refuses(configuration: tuple[str, str, dict[str, Any]], folder: Any) -> None:
    env, name, values = configuration
    try:
        made, checked = configured(env, name, values)
        algorithm = trimtab.__dict__.get(name) or getattr(trimtab, name.upper())
        own = {key: getattr(checked.algorithm, key) for key in setting_names(checked.algorithm)}
        of_run = {key: getattr(checked.training, key) for key in OF_RUN}
        run = trimtab.train(made, algorithm(**own), run_dir=folder, **of_run)
    except TrimtabError as error:
        refusal(error)
        return
    assert run.steps >= checked.training.total_steps
    assert math.isfinite(run.metrics[-1]["train/policy_loss"])
    assert run.evaluations


@pytest.mark.slow
@settings(max_examples=40, **QUIETLY)
@given(configuration=configurations())
def test_any_configuration_trains_or_is_refused(configuration, tmp_path_factory):
    env, name, values = configuration
    short = {"total_steps", "eval_episodes", "eval_every", "eval_count", "max_episode_steps"}
    given_ = {key: value for key, value in values.items() if key not in short}
    trains_or_refuses((env, name, given_), tmp_path_factory.mktemp("run") / "run")


@pytest.mark.parametrize(
    "configuration",
    [
        ("Probe5-v0", "ppo", {"target_kl": 1e-6, "adaptive_kl": 0.01, "value_clip_range": 0.2}),
        ("dict/box", "reinforce", {"episodes": "whole", "gru_units": 2, "trunk": "shared"}),
    ],
)
def test_some_configurations_train(configuration, tmp_path):
    trains_or_refuses(configuration, tmp_path / "run")
