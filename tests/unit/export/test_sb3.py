"""Policies of Stable-Baselines3: they act here as they did there, and their files run nothing."""

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import trimtab
from trimtab.errors import ExportError
from trimtab.export.pickles import read_pickle, read_torch
from trimtab.export.sb3 import read_sb3

FILES = Path(__file__).parent / "sb3"


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("sb3") / "run"
    return trimtab.import_sb3(FILES / "cartpole.zip", "CartPole-v1", run_dir=place)


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("sb3") / "run"
    normalizer = FILES / "pendulum.pkl"
    return trimtab.import_sb3(
        FILES / "pendulum.zip", "Pendulum-v1", normalizer=normalizer, run_dir=place
    )


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_it_acts_and_values_as_it_did_there(name: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(name)
    expected = np.load(FILES / f"{name}.npz")
    found = run.policy(expected["obs"])
    np.testing.assert_allclose(found, expected["actions"], rtol=1e-5, atol=1e-5)
    policy = run.stored_policy()
    network = policy.learner.parameters.network()
    seen = jnp.asarray(expected["obs"])
    if policy.learner.observations is not None:
        seen = policy.learner.observations.normalize(seen)
    values = [float(network.value(one)) for one in seen]
    np.testing.assert_allclose(values, expected["values"], rtol=1e-4, atol=1e-5)


def test_its_settings_come_with_it(pendulum: Any) -> None:
    training, algorithm = pendulum.configuration.training, pendulum.configuration.algorithm
    assert (training.num_envs, training.num_steps) == (1, 64)
    assert (algorithm.epochs, algorithm.minibatches) == (2, 2)
    assert algorithm.hidden_sizes == (8,)
    assert algorithm.activation == "relu"
    assert algorithm.learning_rate == 0.01
    assert algorithm.clip_range == 0.2
    assert algorithm.normalize_observations


def test_it_is_a_run_as_others_are(cartpole: Any, tmp_path: Path) -> None:
    from trimtab.api import resume_point

    assert cartpole.evaluations[0]["steps"] == 128
    assert resume_point(cartpole.path, total_steps=256) == (128, 256)
    assert cartpole.evaluate(episodes=3)["episodes"] == 3
    assert cartpole.export("numpy", tmp_path / "policy.npz").difference < 1e-5


# What a file may not do


class Intruder:
    def __init__(self, canary: Path):
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


def rezipped(path: Path, change: Callable[[str, bytes], bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return buffer.getvalue()


def test_a_pickle_that_would_run_something_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    poison = pickle.dumps(Intruder(canary))

    def poisoned(name: str, data: bytes) -> bytes:
        if name != "policy.pth":
            return data
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("archive/data.pkl", poison)
        return buffer.getvalue()

    bad = tmp_path / "bad.zip"
    bad.write_bytes(rezipped(FILES / "cartpole.zip", poisoned))
    with pytest.raises(ExportError, match=r"asks for (posix|nt)\.mkdir.*Nothing of it was run"):
        trimtab.import_sb3(bad, "CartPole-v1", run_dir=tmp_path / "run")
    (tmp_path / "bad.pkl").write_bytes(poison)
    with pytest.raises(ExportError, match="Nothing of it was run"):
        read_sb3(FILES / "pendulum.zip", tmp_path / "bad.pkl")
    assert not canary.exists()
    assert not (tmp_path / "run").exists()


def test_nothing_in_the_description_is_unpickled(tmp_path: Path) -> None:
    import base64

    canary = tmp_path / "canary"
    poison = base64.b64encode(pickle.dumps(Intruder(canary))).decode()

    def poisoned(name: str, data: bytes) -> bytes:
        if name != "data":
            return data
        about = json.loads(data)
        for value in about.values():
            if isinstance(value, dict) and ":serialized:" in value:
                value[":serialized:"] = poison
        return json.dumps(about).encode()

    odd = tmp_path / "odd.zip"
    odd.write_bytes(rezipped(FILES / "cartpole.zip", poisoned))
    assert read_sb3(odd).steps == 128
    assert not canary.exists()


@pytest.mark.parametrize(
    "name", ["builtins.eval", "numpy.load", "torch.load", "os.system", "trimtab.train"]
)
def test_no_function_can_be_reached(name: str) -> None:
    module, _, function = name.rpartition(".")
    data = f"c{module}\n{function}\n(S'x'\ntR.".encode()
    with pytest.raises(ExportError, match="Nothing of it was run"):
        read_pickle(data, "the file")


def test_a_tensor_must_lie_in_its_data() -> None:
    state = read_torch(_torch_file((0, (2,), (1,))), "the file")
    np.testing.assert_array_equal(state["x"], [1.0, 2.0])
    for outside in [(1, (2,), (1,)), (0, (3,), (1,)), (0, (2,), (-1,)), (-1, (1,), (1,))]:
        with pytest.raises(ExportError, match="outside of its data"):
            read_torch(_torch_file(outside), "the file")


def _torch_file(view: tuple[int, tuple[int, ...], tuple[int, ...]]) -> bytes:
    """As ``torch.save({"x": tensor})`` writes it, of two numbers."""
    offset, shape, stride = view

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(f"I{value}\n".encode() for value in values) + b"t"

    pid = b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI2\ntQ"
    arguments = b"(" + pid + f"I{offset}\n".encode() + numbers(shape) + numbers(stride) + b"t"
    program = b"(dS'x'\nctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"Rs."
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/data/0", np.float32([1.0, 2.0]).tobytes())
    return buffer.getvalue()


@pytest.mark.parametrize("size", [0, 10, 1000, 20_000])
def test_a_cut_file_is_a_sentence(tmp_path: Path, size: int) -> None:
    cut = tmp_path / "cut.zip"
    cut.write_bytes((FILES / "cartpole.zip").read_bytes()[:size])
    with pytest.raises(ExportError):
        read_sb3(cut)


def test_another_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="it was trained in another environment"):
        trimtab.import_sb3(FILES / "cartpole.zip", "Acrobot-v1", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
