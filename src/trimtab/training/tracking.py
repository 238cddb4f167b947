"""Trackers, from the side of training: processes that are started, heard and left."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import trimtab
from trimtab.log.progress import Progress, Status
from trimtab.log.sinks import missing
from trimtab.training.rundir import RunFolder

# At the end of a run, all trackers together hold the process up for no longer than this.
CLOSING_SECONDS = 0.5


@contextlib.contextmanager
def tracked(
    folders: Sequence[RunFolder], trackers: Sequence[str], resumed_at: int, progress: Progress
) -> Iterator[Progress]:
    """``progress``, while trackers follow the runs in ``folders`` from ``resumed_at`` steps on."""
    if not trackers:
        yield progress
        return
    tracking = Tracking(folders, trackers, resumed_at)
    try:
        yield Announcing(progress, tracking)
    finally:
        for sentence in tracking.close():
            progress.say(sentence)


def synchronised(
    folder: RunFolder, trackers: Sequence[str], patience: float
) -> dict[str, str | None]:
    """Send each tracker what it lacks of a run; why it did not get it, or None."""
    processes = [FollowerProcess(tracker, [folder], None, patience) for tracker in trackers]
    for process in processes:
        process.end()
    found: dict[str, str | None] = {}
    for process in processes:
        arrived = process.wait(time.monotonic() + 2 * patience)
        heard = process.heard()
        troubles = [answer["trouble"] for answer in heard if "trouble" in answer]
        silent = f"it did not answer within {patience:g} s"
        found[process.tracker] = None if arrived else (troubles or [silent])[-1]
        process.kill()
    return found


@final
class Announcing:
    """A progress that also says what is heard of the trackers."""

    def __init__(self, progress: Progress, tracking: "Tracking"):
        self._progress, self._tracking = progress, tracking
        self.say = progress.say
        self.planned = progress.planned
        self.compiling = progress.compiling
        self.compiled = progress.compiled
        self.evaluated = progress.evaluated
        self.close = progress.close

    def updated(self, status: Status) -> None:
        self._progress.updated(status)
        for sentence in self._tracking.heard():
            self._progress.say(sentence)


@final
class Tracking:
    """One process for each tracker: see ``follow``."""

    def __init__(self, folders: Sequence[RunFolder], trackers: Sequence[str], resumed_at: int):
        self._folders = folders
        self._followers: list[FollowerProcess] = []
        self._sentences: list[str] = []
        for tracker in trackers:
            if sentence := missing(tracker):
                self._sentences.append(f"{sentence}. Then send what it missed: {self._sync}")
                continue
            try:
                self._followers.append(FollowerProcess(tracker, folders, resumed_at))
            except OSError as error:
                self._sentences.append(f"{tracker} could not be started ({error}). {self._later}")

    @property
    def _sync(self) -> str:
        return f"trimtab sync {self._folders[0].path}"

    @property
    def _later(self) -> str:
        return f"Nothing is lost; send it later with: {self._sync}"

    def heard(self) -> list[str]:
        """What there is to say of the trackers since the last time."""
        sentences, self._sentences = self._sentences, []
        for follower in self._followers:
            for answer in follower.heard():
                if "trouble" in answer:
                    sentences.append(
                        f"{follower.tracker} does not answer as it should ({answer['trouble']}). "
                        "Training goes on, and it is tried again."
                    )
                elif "recovered" in answer:
                    sentences.append(f"{follower.tracker} answers again and gets what it missed.")
                elif "refused" in answer:
                    names = ", ".join(answer["refused"])
                    sentences.append(f"{follower.tracker} refuses the names {names}.")
        return sentences

    def close(self) -> list[str]:
        """Tell the processes that training has ended; they end when all is sent, or give up."""
        deadline = time.monotonic() + CLOSING_SECONDS
        for follower in self._followers:
            follower.end()
        late = [follower for follower in self._followers if not follower.wait(deadline)]
        sentences = self.heard()
        for follower in self._followers:
            if follower not in late:
                follower.kill()
            elif follower.in_trouble:
                sentences.append(f"{follower.tracker} has not got all of it. {self._later}")
                follower.kill()
            else:
                sentences.append(
                    f"{follower.tracker} gets the last of it in the background. To see whether it "
                    f"did: {self._sync}"
                )
                follower.leave()
        return sentences


@final
class FollowerProcess:
    """The process that follows runs for one tracker."""

    def __init__(
        self,
        tracker: str,
        folders: Sequence[RunFolder],
        resumed_at: int | None,
        patience: float | None = None,
    ):
        self.tracker = tracker
        self.in_trouble = False
        self._buffer = b""
        order: dict[str, Any] = {
            "tracker": tracker,
            "runs": [str(folder.path.absolute()) for folder in folders],
            "resumed_at": resumed_at,
        }
        if patience is not None:
            order["patience"] = patience
        sources = str(Path(trimtab.__file__).parents[1])
        path = os.pathsep.join(filter(None, [sources, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trimtab.training.follow", json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C in the terminal is for training alone
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def heard(self) -> list[dict[str, Any]]:
        """What the process has said since the last time; never waits."""
        stream = self._process.stdout
        if stream is None or stream.closed:
            return []
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(stream.fileno(), 65536):
                self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        answers = [json.loads(line) for line in lines]
        for answer in answers:
            self.in_trouble = "trouble" in answer or (
                self.in_trouble and not {"recovered", "done"} & set(answer)
            )
        return answers

    def end(self) -> None:
        """Say that there will be no more."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def wait(self, deadline: float) -> bool:
        """Whether it has sent all by that time."""
        try:
            code = self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        self.in_trouble |= code != 0
        return code == 0

    def kill(self) -> None:
        """End it, if it has not ended, and release what it held."""
        self._process.kill()
        self._process.wait()
        self._close()

    def leave(self) -> None:
        """Let it end by itself, in PATIENCE_SECONDS at the most."""
        self._close()
        threading.Thread(target=self._process.wait, daemon=True).start()

    def _close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()
