"""Trackers, with their own packages: what was sent is read back from where they keep it."""

import base64
import json
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trimtab.training.rundir import RunFolder
from trimtab.training.tracking import FollowerProcess, synchronised

ALL = ["tensorboard", "wandb", "mlflow"]
PATIENCE = 60.0


def send(folder: RunFolder, tracker: str, resumed_at: int | None = None) -> None:
    """All that the tracker lacks, as a run that is resumed there would."""
    process = FollowerProcess(tracker, [folder], resumed_at, PATIENCE)
    process.end()
    arrived = process.wait(time.monotonic() + PATIENCE)
    heard = process.heard()
    process.kill()
    assert arrived, heard


# One grey point.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)


def draw(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(PNG)


# TensorBoard


def events(folder: RunFolder) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder.path)).Reload()


def curve(folder: RunFolder, name: str) -> dict[int, float]:
    points = events(folder).Scalars(name)
    assert len(points) == len({point.step for point in points}), "doubled points"
    return {point.step: point.value for point in points}


def test_tensorboard_shows_what_was_recorded(example: Callable[..., Any]) -> None:
    run = example()
    run.train(3)
    send(run.folder, "tensorboard")
    assert curve(run.folder, "rollout/ep_rew_mean") == {10: 1.5, 20: 3.0, 30: 4.5}
    assert curve(run.folder, "train/entropy_loss") == {10: -0.25, 20: -0.25, 30: -0.25}
    assert curve(run.folder, "eval/mean_reward") == {30: 3.0}
    assert "rollout/return_max" not in events(run.folder).Tags()["scalars"]
    (text,) = events(run.folder).Tensors("settings/text_summary")
    told = text.tensor_proto.string_val[0].decode()
    assert '"learning_rate": 0.5' in told
    assert '"first"' in told


def test_figures_of_the_run_are_shown_once(example: Callable[..., Any]) -> None:
    run = example()
    run.train(1)
    draw(run.folder.path / "figures" / "curve.png")
    send(run.folder, "tensorboard")
    send(run.folder, "tensorboard")
    (image,) = events(run.folder).Images("figures/curve.png")
    assert image.encoded_image_string == PNG


@pytest.mark.parametrize("scheme", ["cleanrl", "trimtab"])
def test_names_are_those_that_were_asked_for(example: Callable[..., Any], scheme: str) -> None:
    run = example(metric_names=scheme)
    run.train(1)
    send(run.folder, "tensorboard")
    expected = {"cleanrl": "charts/episodic_return", "trimtab": "rollout/return_mean"}[scheme]
    assert curve(run.folder, expected) == {10: 1.5}


def test_nothing_is_sent_twice(example: Callable[..., Any]) -> None:
    run = example()
    run.train(2)
    send(run.folder, "tensorboard")
    send(run.folder, "tensorboard")
    run.train(1)
    send(run.folder, "tensorboard")
    assert curve(run.folder, "rollout/ep_rew_mean") == {10: 1.5, 20: 3.0, 30: 4.5}


def test_a_resumed_run_continues_its_curve_in_tensorboard(example: Callable[..., Any]) -> None:
    run = example()
    run.train(4)
    send(run.folder, "tensorboard", resumed_at=0)
    run.go_back(2)
    run.train(4)
    send(run.folder, "tensorboard", resumed_at=20)
    assert list(curve(run.folder, "rollout/ep_rew_mean")) == [10, 20, 30, 40, 50, 60]
    assert curve(run.folder, "eval/mean_reward") == {60: 6.0}, "that at 40 was taken back"


def test_a_run_that_began_again_has_one_curve(example: Callable[..., Any]) -> None:
    run = example()
    run.train(4)
    send(run.folder, "tensorboard", resumed_at=0)
    run.go_back(0)
    run.train(2)
    send(run.folder, "tensorboard", resumed_at=0)
    assert list(curve(run.folder, "rollout/ep_rew_mean")) == [10, 20]


# Weights & Biases


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of an offline run: a log of LevelDB's format, in blocks of 32 kB."""
    from wandb.proto import wandb_internal_pb2 as protocol

    data, position, whole = path.read_bytes(), 7, b""
    while position < len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        if kind == 0:
            return
        whole += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = protocol.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def wandb_curves(folder: RunFolder) -> tuple[dict[str, list[Any]], list[Any]]:
    """The history of all parts of the run, one after the other, and the other records."""
    history: dict[str, list[Any]] = {}
    others = []
    for path in sorted((folder.path / "trackers" / "wandb").glob("offline-run-*/run-*.wandb")):
        for record in wandb_records(path):
            if record.WhichOneof("record_type") != "history":
                others.append(record)
                continue
            items = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            for name, value in items.items():
                history.setdefault(name, []).append((items.get("global_step"), value))
    return history, others


def test_wandb_offline(example: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = example(track_project="somewhere")
    run.train(4)
    run.save_best()
    draw(run.folder.path / "figures" / "curve.png")
    send(run.folder, "wandb", resumed_at=0)
    run.go_back(2)
    run.train(4)
    send(run.folder, "wandb", resumed_at=20)
    history, others = wandb_curves(run.folder)
    assert history["rollout/ep_rew_mean"] == [(10 * n, 1.5 * n) for n in range(1, 7)]
    assert history["eval/mean_reward"] == [(40, 4.0), (60, 6.0)]
    begun = [record.run for record in others if record.WhichOneof("record_type") == "run"]
    assert len({one.run_id for one in begun}) == 1
    assert begun[0].project == "somewhere"
    assert list(begun[0].tags) == ["first", "a:b"]
    assert begun[0].display_name == "example-run"
    settings = {item.key: item.value_json for item in begun[0].config.update}
    assert json.loads(settings["algorithm"]) == {"learning_rate": 0.5}
    kinds = [record.WhichOneof("record_type") for record in others]
    assert "figures/curve.png/sha256" in history
    assert "artifact" in kinds or any("artifact" in str(record) for record in others)


# MLflow


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlflow") / "mlflow.db"


def test_mlflow_on_sqlite(
    example: Callable[..., Any], database: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    monkeypatch.chdir(tmp_path)  # files of experiments lie beside the process
    run = example(track_project="somewhere")
    run.train(4)
    run.save_best()
    draw(run.folder.path / "figures" / "curve.png")
    send(run.folder, "mlflow", resumed_at=0)
    run.go_back(2)
    run.train(4)
    send(run.folder, "mlflow", resumed_at=20)
    found = sqlite3.connect(database)
    rewards = found.execute(
        "select step, value from metrics where key = 'rollout/ep_rew_mean' order by step"
    )
    assert rewards.fetchall() == [(10 * n, 1.5 * n) for n in range(1, 7)]
    assert found.execute("select name, status from runs").fetchall() == [
        ("example-run", "FINISHED")
    ]
    params = dict(found.execute("select key, value from params").fetchall())
    assert params["algorithm.learning_rate"] == "0.5"
    tags = dict(found.execute("select key, value from tags").fetchall())
    assert tags["first"] == tags["a_b"] == "true"
    found.close()
    (curve,) = tmp_path.glob("mlruns/**/figures/curve.png")
    assert curve.read_bytes() == PNG
    (manifest,) = tmp_path.glob("mlruns/**/checkpoint-best/manifest.json")
    assert (
        manifest.read_bytes()
        == (run.folder.path / "checkpoints" / "best" / "manifest.json").read_bytes()
    )


def test_a_run_that_was_not_tracked_is_sent_afterwards(example: Callable[..., Any]) -> None:
    run = example(track=[])
    run.train(2)
    assert synchronised(run.folder, ["tensorboard"], PATIENCE) == {"tensorboard": None}
    assert list(curve(run.folder, "rollout/ep_rew_mean")) == [10, 20]
