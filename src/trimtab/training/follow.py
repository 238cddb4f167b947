"""A tracker's process: it reads the files of a run as they grow, and passes on what is new.

The files are the queue. So a tracker that hangs, fails or is slow costs training nothing, what it
missed is still there to be sent later, and `trimtab sync` is the same code with no run beside it.
How far a tracker has got is in ``trackers/<name>.json`` of the run's folder.

    python -m trimtab.training.follow '{"tracker": "wandb", "runs": ["runs/…"], "resumed_at": null}'

It ends when its standard input does and all has been passed on, or PATIENCE_SECONDS later. To
standard output it writes a JSON object a line, about troubles and about their end.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, final

from trimtab.log.names import evaluation_names, translated
from trimtab.log.secrets import redacted
from trimtab.log.sinks import Point, RunRecord, Sink, make_sink
from trimtab.log.writer import read_after, read_jsonl
from trimtab.settings import replaced
from trimtab.training.checkpoint import MANIFEST
from trimtab.training.config import TrainSettings
from trimtab.training.evaluations import while_training
from trimtab.training.rundir import RunFolder

FOLDER = "trackers"
POLL_SECONDS = 0.5
PATIENCE_SECONDS = 30.0
LONGEST_DELAY_SECONDS = 30.0
ARTIFACT_SECONDS = 600.0
POINTS_AT_ONCE = 200
SILENCE_SECONDS = 10.0
_LONGEST_REASON = 300
_FIGURES = (".png", ".svg", ".html")


@dataclasses.dataclass
class Cursor:
    """How far a tracker has got with a run."""

    steps: int = 0  # of the last update that it has
    offset: int = 0  # in metrics.jsonl, behind that update
    evaluation_steps: int = 0
    artifact: str = ""  # the manifest of the checkpoint that it has
    figures: dict[str, str] = dataclasses.field(default_factory=dict)  # those that it has
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)  # the sink's own

    @staticmethod
    def load(path: Path) -> "Cursor":
        """The cursor in a file; one at the beginning if there is none, or a damaged one."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Cursor(**json.loads(path.read_text(encoding="utf-8")))
        return Cursor()

    def store(self, path: Path) -> None:
        aside = path.with_suffix(".partial")
        aside.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")
        aside.replace(path)


def cursor_path(folder: RunFolder, tracker: str) -> Path:
    return folder.path / FOLDER / f"{tracker}.json"


@final
class Follower:
    """One run, as one tracker gets it."""

    def __init__(self, folder: RunFolder, tracker: str, resumed_at: int | None):
        self._folder = folder
        self._tracker = tracker
        self._resumed_at = resumed_at
        self._sink: Sink | None = None
        self._lock: IO[str] | None = None
        self._attached_at = time.monotonic()
        self.refused: set[str] = set()
        (folder.path / FOLDER).mkdir(exist_ok=True)

    def connect(self) -> Sink:
        """The tracker, ready for the point after the last one that it has."""
        if self._sink is not None:
            return self._sink
        self._take_lock()
        config = self._folder.read_config()
        settings = replaced(TrainSettings(), config["training"], str(self._folder.config_path))
        self._scheme = settings.metric_names
        record = RunRecord(self._folder.path, settings.track_project, settings.tags, config)
        self._path = cursor_path(self._folder, self._tracker)
        self._cursor = cursor = Cursor.load(self._path)
        sink = make_sink(self._tracker)
        if sink.rewinds and self._resumed_at is not None:
            cursor.steps = min(cursor.steps, self._resumed_at)
            cursor.evaluation_steps = min(cursor.evaluation_steps, cursor.steps)
        known = sink.open(record, cursor.memory, cursor.steps)
        if known is not None:
            cursor.steps = known
        if not _ends_with(self._folder.metrics_path, cursor.offset, cursor.steps):
            cursor.offset = 0  # what it has already is skipped by its steps
        self._resumed_at = None
        cursor.store(self._path)
        self._sink = sink
        return sink

    def _take_lock(self) -> None:
        """The process before this one may still be sending: two would send the same twice."""
        if self._lock is None:
            path = cursor_path(self._folder, self._tracker).with_suffix(".lock")
            self._lock = path.open("a", encoding="utf-8")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def disconnect(self) -> None:
        """Forget a connection that failed."""
        self._sink = None

    def pass_on(self) -> int:
        """Send what is new; the number of points."""
        sink, cursor = self.connect(), self._cursor
        sent = 0
        while True:
            rows, end = read_after(self._folder.metrics_path, cursor.offset)
            # Read after the metrics: of an update that is among them, it is on the disk by now.
            evaluations = self._new_evaluations()
            if not rows and not evaluations:
                break
            fresh = [row for row in rows if row["steps"] > cursor.steps]
            points = [Point(row["steps"], translated(row, self._scheme)) for row in fresh]
            points += [
                Point(row["steps"], translated(evaluation_names(row), self._scheme))
                for row in evaluations
            ]
            points.sort(key=lambda point: point.steps)
            self._write(sink, points)
            sent += len(points)
            cursor.offset = end
            cursor.steps = max([cursor.steps, *(row["steps"] for row in fresh)])
            reached = (row["steps"] for row in evaluations)
            cursor.evaluation_steps = max([cursor.evaluation_steps, *reached])
            cursor.store(self._path)
        if time.monotonic() - self._attached_at > ARTIFACT_SECONDS:
            self._attach(sink)
        return sent

    def _new_evaluations(self) -> list[dict[str, Any]]:
        path = self._folder.evaluations_path
        rows = read_jsonl(path) if path.exists() else []
        reached = self._cursor.evaluation_steps
        return [row for row in while_training(rows) if row["steps"] > reached]

    def _write(self, sink: Sink, points: Sequence[Point]) -> None:
        for start in range(0, len(points), POINTS_AT_ONCE):
            part = [self._without_refused(p) for p in points[start : start + POINTS_AT_ONCE]]
            try:
                sink.write(part)
            except Exception as error:
                if not sink.refuses(error):
                    raise
                self._write_by_name(sink, part)

    def _without_refused(self, point: Point) -> Point:
        if not self.refused:
            return point
        return Point(point.steps, {k: v for k, v in point.values.items() if k not in self.refused})

    def _write_by_name(self, sink: Sink, points: Sequence[Point]) -> None:
        """Each name alone, to find those that the tracker refuses and send the others."""
        for name in dict.fromkeys(name for point in points for name in point.values):
            having = [Point(p.steps, {name: p.values[name]}) for p in points if name in p.values]
            try:
                sink.write(having)
            except Exception as error:
                if not sink.refuses(error):
                    raise
                self.refused.add(name)

    def finish(self) -> None:
        """The checkpoint and the pictures, and the end of the connection."""
        sink = self.connect()
        self._attach(sink)
        sink.close()
        self._sink = None

    def _attach(self, sink: Sink) -> None:
        """The best checkpoint and the figures, unless the tracker has them."""
        self._attached_at = time.monotonic()
        for path in figures_of(self._folder.path):
            found = path.stat()
            version = f"{found.st_size}-{found.st_mtime_ns}"
            if self._cursor.figures.get(path.name) != version:
                sink.attach(f"figures/{path.name}", path)
                self._cursor.figures[path.name] = version
                self._cursor.store(self._path)
        best = self._folder.checkpoint_path("best")
        with _copied(best) as (copy, identity):
            if copy is None or identity == self._cursor.artifact:
                return
            sink.attach("checkpoint-best", copy)
        self._cursor.artifact = identity
        self._cursor.store(self._path)


def figures_of(folder: Path) -> list[Path]:
    """The pictures and pages that a run's folder holds, such as what the lab or a report made."""
    places = (folder, folder / "figures")
    return sorted(
        path
        for place in places
        for path in place.glob("*")
        if path.suffix in _FIGURES and path.is_file()
    )


@contextlib.contextmanager
def _copied(checkpoint: Path) -> Iterator[tuple[Path | None, str]]:
    """A copy that training does not replace while it is sent, and what tells it from others."""
    with tempfile.TemporaryDirectory(prefix="trimtab-") as place:
        for attempt in range(3):
            copy = Path(place) / str(attempt) / checkpoint.name
            with contextlib.suppress(OSError):
                before = (checkpoint / MANIFEST).read_text(encoding="utf-8")
                shutil.copytree(checkpoint, copy)
                if (checkpoint / MANIFEST).read_text(encoding="utf-8") == before:
                    yield copy, str(json.loads(before).get("digest"))
                    return
        yield None, ""


def _ends_with(path: Path, offset: int, steps: int) -> bool:
    """Whether the line that ends at ``offset`` is that of ``steps``: the file may be another."""
    if offset == 0:
        return True
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        file.seek(max(0, offset - 65536))
        lines = file.read(min(offset, 65536)).split(b"\n")
        return lines[-1] == b"" and json.loads(lines[-2]).get("steps") == steps
    return False


def serve(
    followers: Sequence[Follower],
    ended: threading.Event,
    tell: Callable[..., None],
    watch: "Watch",
) -> None:
    """Pass on until training has ended and the trackers have it all, whatever happens between."""
    delay, in_trouble, refused = POLL_SECONDS, False, 0
    while True:
        last = ended.is_set()  # asked before reading: what was written before the end is read
        try:
            with watch.watched():
                for follower in followers:
                    follower.pass_on()
                    if last:
                        follower.finish()
            if in_trouble or watch.is_late:
                tell(recovered=True)
            delay, in_trouble = POLL_SECONDS, False
            names = sorted(set().union(*(follower.refused for follower in followers)))
            if len(names) > refused:
                tell(refused=names)
                refused = len(names)
            if last:
                return
        except Exception as error:
            if not in_trouble:
                tell(trouble=reason(error))
            in_trouble = True
            for follower in followers:
                follower.disconnect()
            delay = min(2 * delay, LONGEST_DELAY_SECONDS)
        if last:
            time.sleep(min(delay, 1.0))
        else:
            ended.wait(delay)


@final
class Watch:
    """Says that a tracker hangs, which nothing inside the call that hangs can say."""

    def __init__(self, tell: Callable[..., None], seconds: float = SILENCE_SECONDS):
        self._tell, self._seconds = tell, seconds
        self._since: float | None = None
        threading.Thread(target=self._look, daemon=True).start()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        self._since = time.monotonic()
        self.is_late = False
        try:
            yield
        finally:
            self._since = None

    def _look(self) -> None:
        while True:
            time.sleep(self._seconds / 4)
            since = self._since
            if since is not None and not self.is_late and time.monotonic() - since > self._seconds:
                self.is_late = True
                self._tell(trouble=f"no answer for {self._seconds:g} s")


def reason(error: Exception) -> str:
    """The first line of what went wrong, fit to be shown and stored."""
    text = redacted(f"{type(error).__name__}: {error}".strip())
    return text.splitlines()[0][:_LONGEST_REASON]


def main() -> None:
    """The process: see the module's text."""
    order = json.loads(sys.argv[1])
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for training, which then ends our input
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # trackers chat
        os.dup2(silence, stream.fileno())
    ended = threading.Event()

    def tell(**fields: Any) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody listens any more
            print(json.dumps(fields), file=answers, flush=True)

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        ended.set()
        time.sleep(order.get("patience", PATIENCE_SECONDS))
        tell(gave_up=True)
        os._exit(1)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    followers = [
        Follower(RunFolder.open(path), order["tracker"], order["resumed_at"])
        for path in order["runs"]
    ]
    serve(followers, ended, tell, Watch(tell))
    tell(done=True)
    os._exit(0)  # a tracker's own work at exit may wait for ever; all has been sent


if __name__ == "__main__":
    main()
