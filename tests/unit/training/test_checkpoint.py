"""A checkpoint gives back what was saved, bit for bit, and says no to what it was not made for."""

import dataclasses
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.sharding import NamedSharding, PartitionSpec

from trimtab.errors import CheckpointError
from trimtab.training import checkpoint


class Run(NamedTuple):
    learner: Any
    lanes: Any
    root: Any
    update: Any


def small_run() -> Run:
    return Run(
        learner={"weight": jnp.arange(6.0).reshape(2, 3), "log_std": jnp.float32(-0.5)},
        lanes=(jnp.arange(4, dtype=jnp.int32), jnp.array([True, False])),
        root=jax.random.key(3),
        update=jnp.int32(7),
    )


def as_bytes(leaf: Any) -> tuple[str, tuple[int, ...], bytes]:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    return str(array.dtype), array.shape, array.tobytes()


def assert_same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for here, there in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert as_bytes(here) == as_bytes(there)
        assert isinstance(here, jax.Array) == isinstance(there, jax.Array)


def round_trip(folder: Path, tree: Any, like: Any = None) -> Any:
    checkpoint.save(folder, tree, {})
    return checkpoint.load(folder, tree if like is None else like, expect={})[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints" / "latest"


def test_round_trip(folder: Path):
    run = small_run()
    again = round_trip(folder, run)
    assert isinstance(again, Run)
    assert_same(again, run)
    assert sorted(path.name for path in folder.iterdir()) == [
        "lanes.npz",
        "learner.npz",
        "manifest.json",
        "root.npz",
        "update.npz",
    ]
    assert [path.name for path in folder.parent.iterdir()] == ["latest"]


def test_numpy_reads_the_files(folder: Path):
    checkpoint.save(folder, small_run(), {})
    with np.load(folder / "learner.npz", allow_pickle=False) as arrays:
        assert sorted(arrays) == ["log_std", "weight"]
        assert arrays["log_std"].shape == ()
        np.testing.assert_array_equal(arrays["weight"], np.arange(6.0).reshape(2, 3))


def test_load_into_shapes_alone(folder: Path):
    run = small_run()
    assert_same(round_trip(folder, run, jax.eval_shape(lambda: run)), run)


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_typed_keys_go_on_with_the_same_stream(folder: Path, implementation: str):
    key = jax.random.key(5, impl=implementation)
    run = {"root": key, "many": jax.random.split(key, (2, 3))}
    again = round_trip(folder, run, jax.eval_shape(lambda: run))
    assert again["root"].dtype == key.dtype
    assert again["many"].shape == (2, 3)
    np.testing.assert_array_equal(
        jax.random.normal(again["root"], (3,)), jax.random.normal(key, (3,))
    )
    assert checkpoint.read_manifest(folder)["leaves"]["root"]["key"] == implementation


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "int8", "uint32", "complex64", "float8_e4m3fn", "int4", "bool"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_types_and_shapes(folder: Path, dtype: str, shape: tuple[int, ...]):
    rng = np.random.default_rng(0)
    array = jnp.asarray(rng.integers(0, 2, shape)).astype(dtype)
    again = round_trip(folder, {"x": array})["x"]
    assert again.dtype == array.dtype
    assert_same(again, array)


def test_nan_payloads_and_negative_zero(folder: Path):
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x7F800000, 0x00000001], np.uint32)
    array = jnp.asarray(bits.view(np.float32))
    assert_same(round_trip(folder, {"x": array}), {"x": array})


def test_numpy_leaves_and_python_numbers_keep_their_kind(folder: Path):
    tree = {
        "double": np.array([0.1, math.nan]),
        "swapped": np.array([1, 2], ">i4"),
        "scalar": np.float64(0.1),
        "bfloat16": np.array([1.5], ml_dtypes.bfloat16),
        "strided": np.arange(12).reshape(3, 4)[::2, ::-1],
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "steps": 2**40,
        "rate": 0.1,
        "flag": True,
        "nothing": None,
    }
    again = round_trip(folder, tree)
    assert_same(again, tree)
    assert [type(again[name]) for name in ("steps", "rate", "flag")] == [int, float, bool]
    assert type(again["scalar"]) is np.float64
    assert again["nothing"] is None
    assert again["double"].flags.writeable


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        hnp.arrays(
            st.sampled_from([np.float32, np.int32, np.uint8, np.float64]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        ),
        max_size=4,
    )
)
def test_any_names_and_arrays(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any]):
    folder = tmp_path_factory.mktemp("any") / "latest"
    tree = {"top": arrays, **{f"_{name}": array for name, array in arrays.items()}}
    assert_same(round_trip(folder, tree), tree)


@pytest.mark.parametrize("name", ["..", ".", "", "../../x", "/etc/passwd", "C:\\x", "file", "%"])
def test_names_with_tricks_are_made_plain(folder: Path, name: str):
    tree = {name: {name: jnp.ones(2), "value": jnp.zeros(1)}}
    assert_same(round_trip(folder, tree), tree)
    inside = {path.resolve().parent for path in folder.iterdir()}
    assert inside == {folder.resolve()}


def test_a_tree_that_is_one_leaf_or_none(folder: Path):
    assert_same(round_trip(folder, jnp.arange(3)), jnp.arange(3))
    assert round_trip(folder, {}) == {}


def test_equal_states_give_equal_files(folder: Path):
    checkpoint.save(folder, small_run(), {})
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    checkpoint.save(folder, small_run(), {})
    assert first == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_pinned_arrays_return_to_their_devices(folder: Path):
    mesh = jax.make_mesh((2,), ("lanes",), (jax.sharding.AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec("lanes"))
    tree = {
        "lanes": jax.device_put(jnp.arange(4.0), split),
        "keys": jax.device_put(jax.random.split(jax.random.key(0), 4), split),
        "free": jnp.arange(4.0),
    }
    again = round_trip(folder, tree)
    assert_same(again, tree)
    assert again["lanes"].sharding == again["keys"].sharding == split
    assert not again["free"].committed


def test_the_state_may_be_donated_after_loading(folder: Path):
    tree = {"x": jnp.arange(1024.0)}
    again = round_trip(folder, tree)
    step = jax.jit(lambda tree: {"x": tree["x"] + 1}, donate_argnums=0)
    np.testing.assert_array_equal(step(step(again))["x"], np.arange(1024.0) + 2)


def test_loading_does_not_compile_the_step_again(folder: Path):
    traces = []

    @jax.jit
    def step(run: Run) -> Run:
        traces.append(1)
        return run._replace(update=run.update + 1)

    run = step(step(small_run()))
    step(round_trip(folder, run))
    assert len(traces) == 1


def test_manifest(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NPROC", "2")
    notes = {
        "environment": "CartPole-v1",
        "network": {"actor/0": (4, 64)},
        "update": np.int64(3),
        "best": -math.inf,
    }
    checkpoint.save(folder, small_run(), notes)
    manifest = checkpoint.read_manifest(folder)
    assert manifest["environment"] == "CartPole-v1"
    assert manifest["network"] == {"actor/0": [4, 64]}
    assert manifest["update"] == 3
    assert manifest["best"] == -math.inf
    assert manifest["format_version"] == checkpoint.FORMAT_VERSION
    assert manifest["nproc"] == "2"
    assert manifest["versions"]["jax"] == jax.__version__
    assert manifest["leaves"]["learner/weight"] == {"dtype": "float32", "shape": [2, 3]}
    assert manifest["files"]["learner.npz"]["size"] == (folder / "learner.npz").stat().st_size
    assert json.loads((folder / "manifest.json").read_text())["best"] == "-Infinity"


def test_the_manifest_is_read_and_files_are_written_without_jax(folder: Path):
    checkpoint.save(folder, small_run(), {"update": 3})
    program = (
        "import sys, pathlib; from trimtab.training import checkpoint, rundir\n"
        f"print(checkpoint.read_manifest(pathlib.Path({str(folder)!r}))['update'])\n"
        "checkpoint.write(pathlib.Path(sys.argv[1]), [], {})\n"
        "assert 'jax' not in sys.modules\n"
    )
    command = [sys.executable, "-c", program, str(folder.with_name("empty"))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_a_part_of_the_state(folder: Path):
    run = small_run()
    checkpoint.save(folder, run, {})
    (folder / "lanes.npz").unlink()  # not wanted, so not missed
    like = {"learner": {"weight": run.learner["weight"]}}
    again, _ = checkpoint.load(folder, like, expect={}, partial=True)
    assert_same(again, like)
    with pytest.raises(CheckpointError, match="learner/log_std: this run has nothing"):
        checkpoint.load(folder, like, expect={})


def test_another_environment_or_network_is_named(folder: Path):
    notes = {"environment": "CartPole-v1", "network": {"actor/layers/0/weight": (8, 64), "b": (3,)}}
    checkpoint.save(folder, small_run(), notes)
    expect = {
        "environment": "Acrobot-v1",
        "network": {"actor/layers/0/weight": (4, 64), "c": (2,)},
    }
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(folder, small_run(), expect=expect)
    assert str(caught.value).splitlines() == [
        f"Checkpoint {folder}: it belongs to another environment or network. What differs:",
        "  environment: this run has Acrobot-v1, the checkpoint CartPole-v1",
        "  actor/layers/0/weight: this run has (4, 64), the checkpoint (8, 64)",
        "  c: this run has (2,), the checkpoint nothing",
        "  b: this run has nothing, the checkpoint (3,)",
        "Use the settings that it was saved with, or start a new run.",
    ]
    checkpoint.load(folder, small_run(), expect=notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda run: run._replace(update=jnp.arange(2, dtype=jnp.int32)),
            "update: this run has int32 (2,), the checkpoint int32 ()",
        ),
        (
            lambda run: run._replace(update=jnp.float32(1)),
            "update: this run has float32 (), the checkpoint int32 ()",
        ),
        (lambda run: run._replace(update=3), "update: this run has Python int (), the checkpoint"),
        (
            lambda run: run._replace(root=jax.random.key_data(run.root)),
            "root: this run has uint32 (2,), the checkpoint key<fry> ()",
        ),
        (
            lambda run: run._replace(root=jax.random.key(0, impl="rbg")),
            "root: this run has key<rbg> (), the checkpoint key<fry> ()",
        ),
        (
            lambda run: run._replace(learner={"other": jnp.ones(1)}),
            "learner/weight: this run has nothing, the checkpoint float32 (2, 3)",
        ),
    ],
)
def test_another_form_of_state_is_named(folder: Path, change: Callable[[Run], Run], words: str):
    checkpoint.save(folder, small_run(), {})
    with pytest.raises(CheckpointError, match=re.escape(words)):
        checkpoint.load(folder, change(small_run()), expect={})


def test_long_lists_of_differences_are_cut(folder: Path):
    checkpoint.save(folder, {f"leaf{i:02}": jnp.ones(1) for i in range(30)}, {})
    with pytest.raises(CheckpointError, match="and 18 more"):
        checkpoint.load(folder, {}, expect={})


def test_what_cannot_be_saved_is_named_and_leaves_the_old_checkpoint(folder: Path):
    checkpoint.save(folder, small_run(), {"update": 1})
    for value, words in [
        (jnp.tanh, "learner/activation is .* cannot be saved"),
        ("tanh", "learner/activation is 'tanh' of type str"),
        (np.array([object()]), "learner/activation is .* cannot be saved"),
        (2**70, f"learner/activation = {2**70} cannot be saved"),
    ]:
        with pytest.raises(CheckpointError, match=words):
            checkpoint.save(folder, {"learner": {"activation": value}}, {"update": 2})
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        checkpoint.save(folder, small_run(), {"update": object()})
    with pytest.raises(ValueError, match="sets leaves, files itself"):
        checkpoint.save(folder, small_run(), {"leaves": 1, "files": 2})
    assert checkpoint.read_manifest(folder)["update"] == 1
    assert [path.name for path in folder.parent.iterdir()] == ["latest"]


def test_two_leaves_of_one_name(folder: Path):
    @jax.tree_util.register_pytree_with_keys_class
    @dataclasses.dataclass
    class Twins:
        def tree_flatten_with_keys(self) -> Any:
            same = jax.tree_util.GetAttrKey("same")
            return [(same, jnp.ones(1)), (same, jnp.ones(1))], None

        @classmethod
        def tree_unflatten(cls, _: Any, __: Any) -> "Twins":
            return cls()

    with pytest.raises(CheckpointError, match="both called same"):
        checkpoint.save(folder, Twins(), {})


def test_other_peoples_folders_are_not_replaced(tmp_path: Path):
    for name in ("photos", "thesis.txt"):
        (tmp_path / "home" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "home" / name).write_text("dear")
    with pytest.raises(CheckpointError, match=r"holds other things \(photos, thesis.txt\)"):
        checkpoint.save(tmp_path / "home", small_run(), {})
    with pytest.raises(CheckpointError, match="which is not a folder"):
        checkpoint.save(tmp_path / "home" / "photos", small_run(), {})
    assert (tmp_path / "home" / "photos").read_text() == "dear"


def test_exists(folder: Path):
    assert not checkpoint.exists(folder)
    checkpoint.save(folder, small_run(), {})
    assert checkpoint.exists(folder)
    folder.rename(folder.with_name("latest.previous"))
    assert checkpoint.exists(folder)
