"""Whole runs with a tracker beside them."""

from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import trimtab
from trimtab.api import resume
from trimtab.errors import SettingError

SETTINGS: dict[str, Any] = {"num_envs": 4, "num_steps": 16, "total_steps": 64 * 12}


def train(folder: Path, **settings: Any) -> Any:
    algorithm = trimtab.PPO(minibatches=2)
    return trimtab.train(
        "CartPole-v1", algorithm, run_dir=folder, **{**SETTINGS, "eval_episodes": 3, **settings}
    )


def test_a_tracked_run_and_its_resume_are_one_curve(tmp_path: Path) -> None:
    run = train(tmp_path / "run", track=["tensorboard"], eval_every=4)
    resume(run.path, total_steps=64 * 20)
    read = EventAccumulator(str(run.path), size_guidance={"scalars": 0}).Reload()
    for ours, theirs, factor in [
        ("train/entropy", "train/entropy_loss", -1),
        ("train/grad_norm", "train/grad_norm", 1),
    ]:
        shown = {point.step: point.value for point in read.Scalars(theirs)}
        assert shown == pytest.approx({row["steps"]: factor * row[ours] for row in run.metrics})
        assert len(shown) == len(read.Scalars(theirs)) == 20
    evaluations = {point.step: point.value for point in read.Scalars("eval/mean_reward")}
    assert evaluations == pytest.approx({row["steps"]: row["mean"] for row in run.evaluations})


def test_a_setting_for_trackers_has_no_effect_without_one(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"tags = .* has no effect without a tracker"):
        train(tmp_path / "run", tags=["a"])


def test_a_tracker_must_be_installed_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"pip install 'trimtab\[wandb\]'"):
        train(tmp_path / "run", track=["wandb"])
    assert not (tmp_path / "run").exists()


def test_a_password_in_an_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="api_key looks like a secret"):
        trimtab.train("CartPole-v1", run_dir=tmp_path / "run", env_options={"api_key": "x"})
    assert not (tmp_path / "run").exists()
