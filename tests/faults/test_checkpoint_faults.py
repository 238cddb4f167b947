"""Kills, full disks, flipped bits and ill intent: a checkpoint is whole, or it is refused."""

import errno
import hashlib
import io
import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.errors import CheckpointError
from trimtab.training import checkpoint, npzfile

# Replaces a checkpoint and kills itself just before the k-th call that touches the disk's names or
# asks for its promise. It needs no JAX, and so starts quickly.
KILLED_SAVE = """
import os, pathlib, shutil, signal, sys
import numpy as np
from trimtab.training import checkpoint

class Form:
    dtype, shape = "float32", (3,)

class Leaf:
    key_implementation, form = None, Form
    def __init__(self, name):
        self.name, self.array = name, np.full(3, 2, np.float32)

left = int(sys.argv[2])

def counted(function):
    def call(*arguments, **keywords):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **keywords)
    return call

for module, name in [(os, "rename"), (os, "fsync"), (os, "mkdir"), (os, "unlink"), (os, "rmdir")]:
    setattr(module, name, counted(getattr(module, name)))
leaves = [Leaf("learner/x"), Leaf("lanes/y")]
keep_previous = sys.argv[3] == "True"
checkpoint.write(pathlib.Path(sys.argv[1]), leaves, {"update": 2}, keep_previous=keep_previous)
"""


def state(value: float) -> dict[str, Any]:
    full = jnp.full(3, value, jnp.float32)
    return {"learner": {"x": full}, "lanes": {"y": full}}


def loaded_value(folder: Path) -> float:
    """The one value that all of the state and the manifest agree on."""
    tree, manifest = checkpoint.load(folder, state(0), expect={})
    values = {float(x) for leaf in jax.tree.leaves(tree) for x in leaf}
    assert values == {float(manifest["update"])}
    return values.pop()


def killed_save(folder: Path, step: int, keep_previous: bool = False) -> bool:
    """Whether the save was killed before it was done."""
    command = [sys.executable, "-c", KILLED_SAVE, str(folder), str(step), str(keep_previous)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode == -9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints" / "latest"
    checkpoint.save(folder, state(1), {"update": 1})
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir())


def test_a_kill_at_any_step_of_a_save_leaves_the_old_or_the_new(folder: Path):
    results = []
    for step in range(100):
        shutil.rmtree(folder.parent)
        checkpoint.save(folder, state(1), {"update": 1})
        if not killed_save(folder, step):
            break
        results.append(loaded_value(folder))
        # Whatever the kill left behind, a second one, and then a whole save, go well.
        if step % 3 == 0:
            killed_save(folder, step)
            assert loaded_value(folder) in (1, 2)
        checkpoint.save(folder, state(3), {"update": 3})
        assert loaded_value(folder) == 3
        assert names(folder) == ["latest"]
    assert results == sorted(results)
    assert 1 in results
    assert 2 in results
    assert len(results) > 10


def test_a_kill_at_any_step_leaves_two_whole_checkpoints_where_they_are_kept(folder: Path):
    older = checkpoint.previous(folder)
    for step in range(100):
        shutil.rmtree(folder.parent)
        for value in (0, 1):
            checkpoint.save(folder, state(value), {"update": value}, keep_previous=True)
        killed = killed_save(folder, step, keep_previous=True)
        assert loaded_value(folder) in (1, 2)
        if folder.exists() and older.exists():
            assert loaded_value(older) == loaded_value(folder) - 1
        else:  # between two renames: the older is on the disk under a name that the next save knows
            assert len(list(folder.parent.rglob("manifest.json"))) == 3
        checkpoint.save(folder, state(3), {"update": 3}, keep_previous=True)
        assert names(folder) == ["latest", "latest.previous"]
        assert (loaded_value(folder), loaded_value(older)) in ((3, 1), (3, 2))
        if not killed:
            break
    assert step > 10


def test_a_kill_at_any_step_of_the_first_save_leaves_nothing_or_all(tmp_path: Path):
    folder = tmp_path / "checkpoints" / "latest"
    steps = 0
    while killed_save(folder, steps):
        if checkpoint.exists(folder):
            assert loaded_value(folder) == 2
        shutil.rmtree(folder.parent, ignore_errors=True)
        steps += 1
    assert loaded_value(folder) == 2
    assert steps > 5


@pytest.mark.parametrize("function", ["rename", "fsync"])
def test_a_disk_that_fails_at_any_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch, function: str
):
    failed: list[int | None] = []
    for step in range(20):
        real, calls = getattr(os, function), []

        def fail(*arguments: Any, real: Any = real, calls: Any = calls, step: Any = step) -> Any:
            calls.append(1)
            if len(calls) == step + 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments)

        before = loaded_value(folder)
        with monkeypatch.context() as patch:
            patch.setattr(os, function, fail)
            try:
                checkpoint.save(folder, state(step + 2), {"update": step + 2})
            except OSError as error:
                failed.append(error.errno)
                assert loaded_value(folder) in (before, step + 2)
                assert not [name for name in names(folder) if "partial" in name]
            else:
                break
    assert len(failed) >= 2
    assert set(failed) == {errno.ENOSPC}
    assert loaded_value(folder) == len(failed) + 2
    assert names(folder) == ["latest"]


def test_a_disk_that_fills_up_keeps_the_old_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def fill(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fill)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(folder, state(2), {"update": 2})
    assert loaded_value(folder) == 1
    assert names(folder) == ["latest"]


def test_partials_of_dead_processes_are_removed(folder: Path):
    stale = folder.with_name(".latest.partial-1")
    stale.mkdir()
    (stale / "learner.npz").write_bytes(b"half")
    other = folder.with_name(".best.partial-1")
    other.mkdir()
    checkpoint.save(folder, state(2), {"update": 2})
    assert names(folder) == [".best.partial-1", "latest"]


@pytest.mark.parametrize("file_name", ["learner.npz", "lanes.npz", "manifest.json"])
def test_a_flipped_bit_anywhere_is_noticed(folder: Path, file_name: str):
    path = folder / file_name
    data = path.read_bytes()
    for position in random.Random(0).sample(range(len(data) * 8), 150):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError, match=file_name.replace(".", r"\.") + "|format"):
            checkpoint.load(folder, state(0), expect={})
    path.write_bytes(data)
    assert loaded_value(folder) == 1


@pytest.mark.parametrize("file_name", ["learner.npz", "manifest.json"])
@pytest.mark.parametrize("kept", [0, 1, 100, -1])
def test_a_truncated_file_is_named(folder: Path, file_name: str, kept: int):
    path = folder / file_name
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=f"{re.escape(file_name)} is damaged"):
        checkpoint.load(folder, state(0), expect={})


@pytest.mark.parametrize("file_name", ["learner.npz", "manifest.json"])
def test_a_missing_file_is_named(folder: Path, file_name: str):
    (folder / file_name).unlink()
    with pytest.raises(CheckpointError, match=f"{re.escape(file_name)} is missing"):
        checkpoint.load(folder, state(0), expect={})


@pytest.mark.parametrize("file_name", ["learner.npz", "manifest.json"])
def test_a_pipe_in_place_of_a_file_does_not_hang(folder: Path, file_name: str):
    (folder / file_name).unlink()
    os.mkfifo(folder / file_name)
    with pytest.raises(CheckpointError, match=f"{re.escape(file_name)} is missing"):
        checkpoint.load(folder, state(0), expect={})


def test_a_file_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch):
    real = Path.open

    def refuse(path: Path, *arguments: Any, **keywords: Any) -> Any:
        if path.name == "learner.npz":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CheckpointError, match=r"learner\.npz cannot be read: Permission denied"):
        checkpoint.load(folder, state(0), expect={})


def test_no_checkpoint_at_all(tmp_path: Path):
    with pytest.raises(CheckpointError, match="there is no such folder"):
        checkpoint.load(tmp_path / "latest", state(0), expect={})


def test_the_other_checkpoint_is_offered(folder: Path):
    best = folder.with_name("best")
    checkpoint.save(best, state(5), {"update": 5})
    (folder / "learner.npz").write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"Try the other checkpoint: {re.escape(str(best))}"):
        checkpoint.load(folder, state(0), expect={})
    assert loaded_value(best) == 5


def test_a_checkpoint_replaced_while_it_is_read_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    real, saves = checkpoint.read_npz, []

    def read_late(*arguments: Any) -> Any:
        if len(saves) < 2:
            saves.append(1)
            checkpoint.save(folder, state(len(saves) + 1), {"update": len(saves) + 1})
        return real(*arguments)

    monkeypatch.setattr(checkpoint, "read_npz", read_late)
    assert loaded_value(folder) == 3


# Ill intent: whoever makes a checkpoint also makes its digests.


def resign(folder: Path, change: Callable[[dict[str, Any]], None] = lambda manifest: None) -> None:
    """Make the digests agree with the files, after ``change`` to the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes() if (folder / name).is_file() else b""
        entry.update(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    change(manifest)
    manifest = {**manifest, "digest": "0" * 64}
    manifest["digest"] = hashlib.sha256(encoded(manifest)).hexdigest()
    (folder / "manifest.json").write_bytes(encoded(manifest))


def encoded(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest).encode()


class Canary:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def write_zip(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(folder, state(0), expect={})
    return str(caught.value)


def test_resigning_is_what_an_attacker_can_do(folder: Path):
    write_zip(folder / "learner.npz", {"x.npy": npy(np.full(3, 1, np.float32))})
    resign(folder)
    assert loaded_value(folder) == 1


def test_a_pickle_inside_is_never_opened(folder: Path, tmp_path: Path):
    canary = tmp_path / "canary"
    payload = np.array([Canary(canary)] * 3, dtype=object)
    for data in (npy(payload), pickle.dumps(Canary(canary))):
        write_zip(folder / "learner.npz", {"x.npy": data})
        resign(folder)
        message = refused(folder)
        assert "learner.npz is refused" in message
        assert not canary.exists()
    assert "Python objects" not in message  # a bare pickle is not even an array
    write_zip(folder / "learner.npz", {"x.npy": npy(payload)})
    resign(folder)
    assert "its member 'x' holds Python objects, which are never opened" in refused(folder)
    pickle.loads(pickle.dumps(Canary(canary)))
    assert canary.exists()  # the canary sings when it is unpickled


def test_a_pickle_in_place_of_the_file_is_never_opened(folder: Path, tmp_path: Path):
    canary = tmp_path / "canary"
    (folder / "learner.npz").write_bytes(pickle.dumps(Canary(canary)))
    resign(folder)
    assert "learner.npz is refused: File is not a zip file" in refused(folder)
    assert not canary.exists()


@pytest.mark.parametrize(
    "name", ["../../escape.npy", "/tmp/escape.npy", "a/../../x.npy", "..\\x.npy", "C:x.npy", ".."]
)
def test_traversal_in_member_names_is_refused(folder: Path, name: str):
    good = npy(np.full(3, 1, np.float32))
    write_zip(folder / "learner.npz", {"x.npy": good, name: good})
    resign(folder)
    message = refused(folder)
    assert "is not a plain path" in message
    assert repr(name) in message


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["leaves"].update({"../../x": {"dtype": "int32", "shape": []}}),
        lambda manifest: manifest["leaves"].update({"/etc/x": {"dtype": "int32", "shape": []}}),
        lambda manifest: manifest["files"].update({"../learner.npz": {}}),
        lambda manifest: manifest.update(files=[]),
        lambda manifest: manifest.update(leaves=None),
        lambda manifest: manifest["leaves"].update({"learner/x": 3}),
        lambda manifest: manifest["files"].update({"learner.npz": "x"}),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(folder: Path, change: Any):
    resign(folder, change)
    assert "manifest.json is refused" in refused(folder)


def test_entries_that_make_no_sense_are_refused(folder: Path):
    for entry in ({}, {"dtype": [], "shape": {}}, {"dtype": "float32", "shape": [[3]]}):
        resign(folder, lambda manifest, e=entry: manifest["leaves"].update({"learner/x": e}))
        assert "learner/x: this run has float32 (3,), the checkpoint" in refused(folder)
    resign(
        folder,
        lambda manifest: manifest["leaves"].update(
            {"learner/x": {"dtype": "float32", "shape": [3]}}
        ),
    )
    resign(folder, lambda manifest: manifest["files"]["learner.npz"].update(size="many"))
    assert "its manifest says many" in refused(folder)


def test_hidden_and_repeated_members_are_refused(folder: Path):
    good = npy(np.full(3, 1, np.float32))
    write_zip(folder / "learner.npz", {"x.npy": good, "hidden.npy": good})
    resign(folder)
    assert "its members are not the ones that its manifest describes" in refused(folder)
    with zipfile.ZipFile(folder / "learner.npz", "w") as archive:
        archive.writestr("x.npy", good)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", good)
    resign(folder)
    assert "its members are not the ones that its manifest describes" in refused(folder)


def test_a_compressed_member_is_refused(folder: Path):
    bomb = npy(np.zeros(1_000_000, np.float32))
    write_zip(folder / "learner.npz", {"x.npy": bomb}, zipfile.ZIP_DEFLATED)
    resign(folder)
    assert "its member 'x.npy' is compressed" in refused(folder)


def test_an_oversized_member_is_refused_before_it_takes_memory(folder: Path):
    good = npy(np.full(3, 1, np.float32))
    huge = good.replace(b"(3,)", b"(300000000000,)")
    huge = huge.replace(b" " * 11 + b"\n", b"\n", 1)  # the header keeps its length
    assert len(huge) == len(good)
    for data, words in [
        (huge, r"float32 \(300000000000,\), and float32 \(3,\) was expected"),
        (good + b"more", "does not hold 12 bytes"),
        (good[:-1], "does not hold 12 bytes"),
        (npy(np.ones(3, np.int32)), r"int32 \(3,\), and float32 \(3,\) was expected"),
        (good[:20], "learner.npz is refused"),
        (b"", "learner.npz is refused"),
    ]:
        write_zip(folder / "learner.npz", {"x.npy": data})
        resign(folder)
        assert re.search(words, refused(folder))


def test_a_newer_format_is_refused(folder: Path):
    resign(folder, lambda manifest: manifest.update(format_version=99))
    assert "it has the format 99, and this trimtab reads up to 1" in refused(folder)
    with pytest.raises(CheckpointError, match="Install a newer trimtab"):
        checkpoint.read_manifest(folder)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "3", "{}", '"x"', "{", "[" * 100_000, '{"format_version": true}']
)
def test_a_manifest_of_another_kind(folder: Path, text: str):
    (folder / "manifest.json").write_text(text)
    assert "manifest.json is damaged" in refused(folder)


def test_a_manifest_too_large_to_read(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoint, "_LARGEST_MANIFEST", 10)
    assert "manifest.json is larger than 10 bytes" in refused(folder)


def test_a_random_key_of_an_unknown_kind(folder: Path):
    key = jax.random.key(0)
    checkpoint.save(folder, {"root": key}, {})
    resign(folder, lambda manifest: manifest["leaves"]["root"].update(key="made-up"))
    with pytest.raises(CheckpointError, match="root is a random key of the kind 'made-up'"):
        checkpoint.load(folder, {"root": key}, expect={})
    resign(folder, lambda manifest: manifest["leaves"]["root"].update(key="rbg"))
    with pytest.raises(CheckpointError, match="root"):
        checkpoint.load(folder, {"root": key}, expect={})


def test_plain_paths():
    assert npzfile.is_plain_path("learner/params/0/weight.npy")
    assert npzfile.is_plain_path("%2E%2E/..a")
    for name in ("", "/a", "a/", "a//b", ".", "a/..", "a\\b", "a:b", "a\0", "é", "a\n"):
        assert not npzfile.is_plain_path(name)
