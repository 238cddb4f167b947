"""A run is trained again with the same numbers, or it is said where and why they differ."""

import re
from pathlib import Path

import gymnasium
import pytest

import trimtab
from trimtab.api import resume
from trimtab.errors import RunFolderError, SettingError
from trimtab.training.rundir import RunFolder

SETTINGS = {"num_envs": 4, "num_steps": 16, "total_steps": 64 * 6, "eval_episodes": 3}


def train(folder: Path, env: object = "CartPole-v1", **settings: object) -> trimtab.TrainedRun:
    algorithm = trimtab.PPO(minibatches=2, hidden_sizes=(8,), learning_rate_schedule="linear")
    return trimtab.train(env, algorithm, run_dir=folder, **{**SETTINGS, **settings})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> trimtab.TrainedRun:
    return train(tmp_path_factory.mktemp("fused") / "run")


def change_a_bit(path: Path, update: int, metric: str) -> None:
    """The last digit of a number in a run's metrics."""
    lines = path.read_text().splitlines(keepends=True)
    found = re.search(rf'"{metric}":(-?[\d.e-]+)', lines[update - 1])
    assert found
    digits = found.group(1)
    place = digits.find("e") if "e" in digits else len(digits)
    other = "5" if digits[place - 1] != "5" else "6"
    changed = digits[: place - 1] + other + digits[place:]
    lines[update - 1] = lines[update - 1].replace(f'"{metric}":{digits}', f'"{metric}":{changed}')
    path.write_text("".join(lines))


def test_a_fused_run_is_reproduced(run: trimtab.TrainedRun, tmp_path: Path) -> None:
    found = trimtab.reproduce(run, run_dir=tmp_path / "again")
    assert found.reproduced
    assert (found.updates, found.evaluations) == (6, len(run.evaluations) + 1)
    assert found.causes == ()
    assert trimtab.load(tmp_path / "again").evaluations == run.evaluations


@pytest.mark.parametrize("vectorization", ["in-process", "workers"])
def test_a_host_run_is_reproduced(tmp_path: Path, vectorization: str) -> None:
    run = train(tmp_path / "run", "gymnasium:CartPole-v1", vectorization=vectorization)
    assert trimtab.reproduce(run).reproduced


def test_one_changed_bit_is_found(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    change_a_bit(run.folder.metrics_path, 4, "train/value_loss")
    found = trimtab.reproduce(run)
    assert not found.reproduced
    difference = found.differences["run"]
    assert (difference.update, difference.metric) == (4, "train/value_loss")
    assert difference.others == 0
    assert "a file of the run was changed" in found.causes[0]
    assert trimtab.reproduce(run, updates=3).reproduced
    assert found.folder is None


def test_a_changed_evaluation_is_found(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    path = run.folder.evaluations_path
    path.write_text(path.read_text().replace('"update":2,', '"update":2,"more":1,', 1))
    (difference,) = trimtab.reproduce(run).differences.values()
    assert (difference.update, difference.metric, difference.evaluation) == (2, "more", True)


def test_a_run_that_was_made_longer_is_trained_again_in_its_stages(
    run: trimtab.TrainedRun, tmp_path: Path
) -> None:
    first = train(tmp_path / "run")
    resume(first.path, total_steps=64 * 9)
    (note,) = RunFolder.open(first.path).resumed
    assert note == {"steps": 64 * 6, "changed": {"total_steps": [64 * 6, 64 * 9]}}
    found = trimtab.reproduce(first.path)
    assert found.reproduced
    assert found.updates == 9
    assert trimtab.reproduce(first.path, updates=4).updates == 4


def test_a_group_is_reproduced_as_a_whole(tmp_path: Path) -> None:
    algorithm = trimtab.PPO(minibatches=2, hidden_sizes=(8,))
    group = trimtab.train_group(
        "CartPole-v1", algorithm, seeds=[0, 1, 2], run_dir=tmp_path / "group", **SETTINGS
    )
    assert trimtab.reproduce(group.path).reproduced
    with pytest.raises(RunFolderError, match=r"is a run of a group.*trimtab reproduce .*group"):
        trimtab.reproduce(group.runs[0])
    change_a_bit(group.runs[1].folder.metrics_path, 3, "train/entropy")
    found = trimtab.reproduce(group.path)
    assert list(found.differences) == [group.runs[1].path.name]


class Unseeded(gymnasium.Env):
    """Its observations come from random numbers that the seed does not reach."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        import numpy as np

        self.numbers = np.random.default_rng()

    def observed(self):
        return self.numbers.uniform(-1, 1, 2).astype("float32")

    def reset(self, *, seed=None, options=None):
        return self.observed(), {}

    def step(self, action):
        return self.observed(), 1.0, bool(self.numbers.random() < 0.2), False, {}


def test_an_environment_with_random_numbers_of_its_own_is_suspected(tmp_path: Path) -> None:
    run = train(tmp_path / "run", Unseeded)
    found = trimtab.reproduce(run, env=Unseeded)
    assert next(iter(found.differences.values())).update == 1
    assert "random numbers that its seed does not reach" in found.causes[0]


def test_what_cannot_be_compared_is_refused(run: trimtab.TrainedRun, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="expected a number of at least 1"):
        trimtab.reproduce(run, updates=0)
    with pytest.raises(RunFolderError, match="is not a run folder"):
        trimtab.reproduce(tmp_path / "nothing")
    with pytest.raises(RunFolderError, match="already holds a run"):
        trimtab.reproduce(run, run_dir=run.path)
    empty = RunFolder.create(tmp_path / "empty", "CartPole-v1", "ppo", 0)
    empty.config_path.write_bytes(run.folder.config_path.read_bytes())
    with pytest.raises(RunFolderError, match="has no metrics yet"):
        trimtab.reproduce(empty.path)


def test_diff_says_what_differs(run: trimtab.TrainedRun, tmp_path: Path) -> None:
    other = train(tmp_path / "other", seed=1)
    found = trimtab.diff(run, other.path)
    assert found.settings == {"training.seed": (0, 1)}
    assert not [name for name in found.circumstances if not name.startswith("git.")]
    assert found.results["steps"] == (64 * 6, 64 * 6)
    assert found.first_difference is not None
    assert found.first_difference.update == 1
    assert trimtab.diff(run, run).first_difference is None
