"""Trackers that hang, refuse, die and come back: training is not held up, and nothing is lost."""

import contextlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from trimtab.log.progress import Quiet
from trimtab.log.writer import JsonLines
from trimtab.training.rundir import RunFolder
from trimtab.training.tracking import synchronised, tracked

MOST_SECONDS = 1.0
BATCH = 10


class Heard(Quiet):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "run", "CartPole-v1", "ppo", 0)
    folder.write_config(
        training={"track": ["mlflow"]},
        algorithm={},
        environment={"id": "CartPole-v1"},
        algorithm_name="ppo",
        devices={},
    )
    return folder


def add(folder: RunFolder, first: int, last: int) -> None:
    rows = [
        {"update": n, "steps": BATCH * n, "train/entropy": 1.0 * n, "train/grad_norm": 2.0 * n}
        for n in range(first, last + 1)
    ]
    with JsonLines(folder.metrics_path) as lines:
        lines.append(rows)


@contextlib.contextmanager
def deaf_server() -> Iterator[str]:
    """It takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """An address where connections are refused."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


class Tracker:
    """A server that speaks as much of MLflow's language as a run needs."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, list[tuple[int, float]]]] = {}
        self.status: dict[str, str] = {}
        self.refused_name = ""
        self.port = 0
        self._server: http.server.ThreadingHTTPServer | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        tracker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                self._answer(parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(self.path, json.loads(body))

            def _answer(self, path: str, given: dict[str, Any]) -> None:
                code, found = tracker.answer(path.partition("/mlflow/")[2], given)
                data = json.dumps(found).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def die(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, what: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if what == "experiments/get-by-name":
            return 200, {"experiment": {"experiment_id": "1", "name": given["experiment_name"]}}
        if what == "runs/create":
            name = f"run{len(self.runs)}"
            self.runs[name] = {}
            return 200, {"run": self._run(name)}
        if what == "runs/log-batch":
            return self._log(given)
        if what == "runs/update":
            self.status[given["run_id"]] = given["status"]
            return 200, {"run_info": self._run(given["run_id"])["info"]}
        if what == "runs/get":
            return 200, {"run": self._run(given["run_id"])}
        if what == "metrics/get-history":
            points = self.runs[given["run_id"]].get(given["metric_key"], [])
            metrics = [
                {"key": given["metric_key"], "step": s, "value": v, "timestamp": 1}
                for s, v in points
            ]
            return 200, {"metrics": metrics}
        return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": what}

    def _log(self, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        for metric in given.get("metrics", []):
            if metric["key"] == self.refused_name:
                return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "no such name"}
        for metric in given.get("metrics", []):
            curve = self.runs[given["run_id"]].setdefault(metric["key"], [])
            curve.append((int(metric["step"]), metric["value"]))
        return 200, {}

    def _run(self, name: str) -> dict[str, Any]:
        info = {"run_id": name, "run_uuid": name, "experiment_id": "1", "artifact_uri": "file:///"}
        return {"info": {**info, "status": "RUNNING", "start_time": 1}, "data": {}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracker]:
    tracker = Tracker()
    tracker.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracker.address)
    yield tracker
    tracker.die()


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


class Stopwatch:
    """Seconds spent inside."""

    total = 0.0

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.total += time.monotonic() - self._begun


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
@pytest.mark.parametrize("place", [deaf_server, nobody])
def test_a_tracker_that_is_down_holds_nothing_up(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, tracker: str, place: Any
) -> None:
    heard = Heard()
    with place() as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.setenv("WANDB_BASE_URL", address)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        watch, held_up = tracked([folder], [tracker], 0, heard), Stopwatch()
        with held_up:
            progress = watch.__enter__()
        add(folder, 1, 3)
        for _ in range(20):
            with held_up:
                progress.updated(None)  # type: ignore[arg-type]
            time.sleep(0.1)
        with held_up:
            watch.__exit__(None, None, None)
    assert held_up.total < MOST_SECONDS
    assert any(f"trimtab sync {folder.path}" in sentence for sentence in heard.sentences)
    assert "0" * 40 not in "".join(heard.sentences)


def test_what_a_dead_tracker_missed_is_sent_when_it_lives_again(
    folder: RunFolder, server: Tracker
) -> None:
    heard = Heard()
    with tracked([folder], ["mlflow"], 0, heard) as progress:
        add(folder, 1, 3)
        wait_until(lambda: bool(server.runs.get("run0")))
        server.die()
        add(folder, 4, 5)

        def troubled() -> bool:
            progress.updated(None)  # type: ignore[arg-type]
            return any("does not answer" in sentence for sentence in heard.sentences)

        wait_until(troubled)
    assert "send it later" in heard.sentences[-1]
    add(folder, 6, 7)
    server.start()
    assert synchronised(folder, ["mlflow"], 60.0) == {"mlflow": None}
    assert list(server.runs) == ["run0"], "the same run goes on"
    curve = server.runs["run0"]["train/entropy_loss"]
    assert curve == [(BATCH * n, -1.0 * n) for n in range(1, 8)]
    assert server.status["run0"] == "FINISHED"


def test_a_cursor_that_was_lost_doubles_nothing(folder: RunFolder, server: Tracker) -> None:
    add(folder, 1, 3)
    synchronised(folder, ["mlflow"], 60.0)
    cursor = folder.path / "trackers" / "mlflow.json"
    noted = json.loads(cursor.read_text())
    # As when the process was killed between sending and noting that it had.
    cursor.write_text(json.dumps({**noted, "steps": 10, "offset": 0}))
    add(folder, 4, 4)
    synchronised(folder, ["mlflow"], 60.0)
    steps = [step for step, _ in server.runs["run0"]["train/entropy_loss"]]
    assert steps == [10, 20, 30, 40]


def test_a_name_that_is_refused_is_left_out_and_said(folder: RunFolder, server: Tracker) -> None:
    server.refused_name = "train/entropy_loss"
    heard = Heard()
    with tracked([folder], ["mlflow"], 0, heard) as progress:
        add(folder, 1, 3)

        def told() -> bool:
            progress.updated(None)  # type: ignore[arg-type]
            return bool(heard.sentences)

        wait_until(told)
    assert heard.sentences[0] == "mlflow refuses the names train/entropy_loss."
    assert server.runs["run0"]["train/grad_norm"] == [(10, 2.0), (20, 4.0), (30, 6.0)]
    assert "train/entropy_loss" not in server.runs["run0"]


def test_no_password_reaches_a_file(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with nobody() as address:
        secret = address.replace("://", "://me:sesame77@")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", secret)
        add(folder, 1, 1)
        found = synchronised(folder, ["mlflow"], 3.0)
    assert found["mlflow"]
    assert "sesame77" not in found["mlflow"]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(b"sesame77" in path.read_bytes() for path in files)


def test_a_tracker_that_is_not_installed_is_told_of_and_left_out(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    heard = Heard()
    with tracked([folder], ["wandb"], 0, heard) as progress:
        progress.updated(None)  # type: ignore[arg-type]
    assert "pip install 'trimtab[wandb]'" in heard.sentences[0]
