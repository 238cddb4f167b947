"""A disk that really fills up: a small file system of its own, or a limit on the size of files."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import trimtab
from trimtab.api import resume
from trimtab.errors import RunFolderError
from trimtab.log.progress import Quiet
from trimtab.training import checkpoint
from trimtab.training.leaves import snapshot
from trimtab.training.saver import Saver, Snapshot

SMALL = {"num_envs": 4, "num_steps": 16, "total_steps": 64 * 40, "eval_episodes": 2}


class Heard(Quiet):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def fill(place: Path, left: int = 0) -> Path:
    """Use the disk up, but for so many bytes."""
    filler = place / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    with filler.open("r+b") as file:
        file.truncate(max(0, filler.stat().st_size - left))
    return filler


def state(value: float, size: int) -> dict[str, np.ndarray]:
    return {"learner": np.full(size, value, np.float32)}


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(small_disk: Path) -> None:
    folder = small_disk / "checkpoints" / "latest"
    checkpoint.save(folder, state(1, 50_000), {"update": 1})
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(folder, state(2, 250_000), {"update": 2})
    tree, manifest = checkpoint.load(folder, state(0, 50_000), expect={})
    assert manifest["update"] == 1
    assert set(tree["learner"].tolist()) == {1.0}
    assert [path.name for path in folder.parent.iterdir()] == ["latest"]


def test_a_save_that_was_refused_is_made_up_for_when_there_is_room(small_disk: Path) -> None:
    folder = small_disk / "latest"

    def taken(value: int) -> Snapshot:
        return Snapshot(folder, snapshot(state(value, 50_000)), {"update": value}, True)

    with Saver() as saver:
        filler = fill(small_disk, left=16_384)
        saver.submit(taken(1))
        saver.wait()
        (error,) = saver.news().values()
        assert "No space left" in str(error)
        filler.unlink()
        saver.submit(taken(2))
        saver.wait()
        assert saver.refused == {}
    assert checkpoint.read_manifest(folder)["update"] == 2


def test_training_outlives_a_full_disk_and_says_so(small_disk: Path) -> None:
    heard = Heard()
    algorithm = trimtab.PPO(minibatches=2, hidden_sizes=(8,))
    first = trimtab.train("CartPole-v1", algorithm, run_dir=small_disk / "run", **SMALL)
    filler = fill(small_disk, left=8192)
    with pytest.raises(RunFolderError, match="its end could not be written") as caught:
        resume(first.path, heard, total_steps=64 * 80, checkpoint_every=10)
    assert "trimtab resume RUN" in str(caught.value)
    assert any("could not be written (No space left on device)" in one for one in heard.sentences)
    assert checkpoint.read_manifest(first.folder.checkpoint_path("latest"))["update"] == 40
    filler.unlink()
    whole = resume(first.path)
    assert [row["update"] for row in whole.metrics] == list(range(1, 81))


# Where mounting is not allowed, the system can limit the size of files instead.
LIMITED = """
import pathlib, resource, signal, sys
import numpy as np
from trimtab.training import checkpoint

class Form:
    dtype, shape = "float32", (250_000,)

class Leaf:
    name, key_implementation, form = "learner", None, Form
    array = np.full(250_000, 2, np.float32)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
try:
    checkpoint.write(pathlib.Path(sys.argv[1]), [Leaf()], {"update": 2})
except OSError as error:
    sys.exit(error.strerror)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limit on the size of files here")
def test_a_file_that_may_not_grow_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "latest"
    checkpoint.save(folder, state(1, 1000), {"update": 1})
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder)], capture_output=True, text=True, check=False
    )
    assert "File too large" in done.stderr
    assert checkpoint.load(folder, state(0, 1000), expect={})[1]["update"] == 1
    assert [path.name for path in folder.parent.iterdir()] == ["latest"]
