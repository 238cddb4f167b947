"""``trimtab train`` and ``trimtab resume``: precedence, bad input, what they say, how they stop."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import trimtab.api
from trimtab.cli.environments import env_option
from trimtab.configuration import Configuration
from trimtab.errors import SettingError, TrimtabError

QUICK = ("--num-envs", 8, "--num-steps", 16, "--hidden-sizes", 8)


class _CapturedError(TrimtabError):
    pass


@pytest.fixture
def configured(call, monkeypatch: pytest.MonkeyPatch):
    """The configuration that ``trimtab train`` would have trained."""
    seen: list[Configuration] = []

    def capture(configuration: Configuration, *_: Any, **__: Any) -> None:
        seen.append(configuration)
        raise _CapturedError("Enough.")

    monkeypatch.setattr(trimtab.api, "train_configuration", capture)

    def configured(*arguments: object) -> Configuration:
        answer = call("train", *arguments)
        assert answer.err == "trimtab: Enough.\n"
        return seen.pop()

    return configured


def test_precedence_defaults_preset_file_flags(configured, tmp_path: Path) -> None:
    plain = configured("Acrobot-v1").training
    preset = configured("CartPole-v1").training
    assert preset.total_steps != plain.total_steps
    file = tmp_path / "mine.toml"
    file.write_text("total_steps = 7000\nnum_envs = 16\n[ppo]\ngamma = 0.5\nepochs = 2\n")
    from_file = configured("CartPole-v1", "--config", file)
    assert (from_file.training.total_steps, from_file.training.num_envs) == (7000, 16)
    assert (from_file.algorithm.gamma, from_file.algorithm.epochs) == (0.5, 2)
    assert from_file.algorithm.learning_rate == configured("CartPole-v1").algorithm.learning_rate
    both = configured("CartPole-v1", "--config", file, "--num-envs", 64, "--gamma", 0.9)
    assert (both.training.total_steps, both.training.num_envs) == (7000, 64)
    assert (both.algorithm.gamma, both.algorithm.epochs) == (0.9, 2)


def test_a_flag_that_repeats_the_default_still_overrides_the_file(
    configured, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[ppo]\nnormalize_observations = true\nlearning_rate = 0.1\n")
    flags = ("--no-normalize-observations", "--learning-rate", "3e-4")
    algorithm = configured("Acrobot-v1", "--config", file, *flags).algorithm
    assert (algorithm.normalize_observations, algorithm.learning_rate) == (False, 3e-4)


def test_help_shows_the_defaults_of_the_environment_and_the_file(call, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("num_envs = 123\n")
    page = call("train", "CartPole-v1", "--config", file, "--help").out
    assert "(default: 123)" in page
    assert "(default: 100000)" in page  # the preset's total_steps
    assert "usage: trimtab train" in call("train", "No-Such-Environment", "--help").out


def test_environment_options(configured) -> None:
    options = ("--env-option", "is_slippery=false", "size=8", "--env-option", "map_name=8x8")
    configuration = configured("FrozenLake-v1", *options)
    assert configuration.env_options == {"is_slippery": False, "size": 8, "map_name": "8x8"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=0.5", 0.5),
        ("a=true", True),
        ("a=False", False),
        ("a=[1, 2]", [1, 2]),
        ("a=4x4", "4x4"),
        ('a="4x4"', "4x4"),
        ("a=x=y", "x=y"),
        ("a=", ""),
    ],
)
def test_option_values_are_toml_or_text(text: str, value: object) -> None:
    assert env_option(text) == ("a", value)


def test_options_need_a_name() -> None:
    with pytest.raises(SettingError, match="expected NAME=VALUE"):
        env_option("8")


BAD = [
    ("CartPol-v1", "no environment 'CartPol-v1'. Did you mean 'CartPole-v1'?"),
    ("brax:ant", "pip install 'trimtab[brax]'"),
    ("gymnx:CartPole-v1", "no backend 'gymnx'. Did you mean 'gymnax'"),
    ("CartPole-v1 --learnin-rate 1", "no flag --learnin-rate. Did you mean --learning-rate?"),
    ("CartPole-v1 --learning-rate abc", "abc is not valid: expected a number above 0"),
    ("CartPole-v1 --learning-rate 2", "out of bounds: expected a number above 0 and at most 1"),
    ("CartPole-v1 --num-envs 2.5", "expected a whole number at least 1"),
    ("CartPole-v1 --activation tahn", "Did you mean 'tanh'?"),
    (
        "CartPole-v1 --algo poo",
        "no algorithm 'poo': expected one of ppo, a2c, reinforce. Did you mean 'ppo'?",
    ),
    ("CartPole-v1 --minibatches 3", "1024 transitions cannot be split into minibatches = 3"),
    ("CartPole-v1 --minibatches 3", "Nearest that divide: 1, 2, 4."),
    (
        "CartPole-v1 --num-envs 6 --gru-units 8",
        "num_envs = 6 lanes cannot be split into minibatches = 4 equal parts, and a recurrent "
        "policy (gru_units) learns from whole lanes. Nearest that divide: 2, 3, 6.",
    ),
    ("CartPole-v1 --num-envs 4 --devices 2 --gru-units 8", "devices = 2 cannot share num_envs"),
    ("CartPole-v1 --devices many", "expected 'auto' or a whole number"),
    ("CartPole-v1 --devices 7", "cannot share num_envs = 32 lanes evenly"),
    ("CartPole-v1 --config missing.toml", "missing.toml cannot be read: No such file"),
    ("CartPole-v1 --env-option gravty=1", "has no option 'gravty'. Did you mean 'gravity'?"),
    ("CartPole-v1 --env-option gravity", "expected NAME=VALUE"),
    ("CartPole-v1 --num-envs 1e9", "of memory for one rollout"),
    ("CartPole-v1 --run-dir file", "file cannot be written"),
    ("CartPole-v1 --run-dir file/below", "file/below cannot be written"),
    ("CartPole-v1 --run-dir taken", "already holds a run"),
    ("--seed 1", "ENV is missing"),
    ("CartPole-v1 Acrobot-v1", "'Acrobot-v1' was not expected: ENV is 'CartPole-v1' already."),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD)
def test_bad_input_gets_a_sentence_and_leaves_nothing_behind(
    refused, tmp_path: Path, arguments: str, sentence: str
) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "config.toml").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    assert sentence in refused("train", *arguments.split())
    left = [path for path in sorted(tmp_path.rglob("*")) if path.name != "runs"]
    assert left == before
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("learnin_rate = 1", "there is no setting 'learnin_rate'. Did you mean 'learning_rate'?"),
        ("[ppo]\nlearning_rate = 'x'", "learning_rate = 'x' is not valid: expected a number"),
        ("[ppo]\nlearning_rate = 7", "learning_rate = 7 is out of bounds"),
        ("num_envs = true", "num_envs = True is not valid: expected a whole number"),
        ("num_envs = 2024-01-01", "is not valid: expected a whole number"),
        ("[poo]\nepochs = 1", "there is no table [poo] for a run of ppo. Did you mean 'ppo'?"),
        ("[ppo.more]\nepochs = 1", "there is no setting 'more'"),
        ("learning_rate = ", "is not valid TOML"),
        ("schema_version = 1", "expected a table [environment]"),
    ],
)
def test_bad_files_get_a_sentence(refused, tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    answer = refused("train", "CartPole-v1", "--config", file)
    assert sentence in answer
    assert "mine.toml" in answer


def test_a_run_can_be_made_again_from_its_configuration(
    trained, configured, refused, tmp_path: Path
) -> None:
    folder, _ = trained
    file = folder / "config.toml"
    again = configured("CartPole-v1", "--config", file)
    assert again.training.total_steps == 2048
    assert again.algorithm.hidden_sizes == (8,)
    assert "'CartPole-v1', not 'Acrobot-v1'" in refused("train", "Acrobot-v1", "--config", file)


def test_the_verdict(trained) -> None:
    folder, answer = trained
    assert answer.code == 0
    first, *rest = answer.out.splitlines()
    assert first.startswith("not solved: mean return ")
    assert " over 20 episodes (475 counts as solved), after 2,048 steps in " in first
    assert " (compiled in " in first
    assert rest[-3:] == [
        f"the run:     {folder}",
        f"evaluate it: trimtab eval {folder}",
        f"train more:  trimtab resume {folder} --total-steps 4096",
    ]
    # No live display where there is no terminal; which of two CartPoles it was is said, with which
    # settings, and what they will do.
    which, settings, *plan = answer.err.splitlines()
    assert which.startswith("CartPole-v1 is gymnax's")
    assert settings == "Settings: the preset 'cartpole-v1', tuned for this environment."
    assert plan == [
        "an update: 32 lanes × 32 steps = 1,024 transitions; 16 gradient steps of 256",
        "the run: 2 updates = 2,048 steps, 32 gradient steps",
        "mind: the run has only 2 updates: a policy improves from update to update, and 32 lanes "
        "spend the steps on few of them; --total-steps 51200 (1 more: see trimtab explain)",
    ]


def test_a_solved_environment_is_said_to_be_solved(call) -> None:
    answer = call("train", "Probe1-v0", "--total-steps", 512, *QUICK, "--run-dir", "run")
    assert answer.out.startswith("solved: mean return 1.000 ± 0.000 over 20 episodes, after 512 ")
    assert "first evaluated at 0.95 or better after " in answer.out


def test_json_is_one_object_a_line(call) -> None:
    answer = call("train", "Probe2-v0", "--total-steps", 512, *QUICK, "--json", "--seed", 3)
    lines = [json.loads(line) for line in answer.out.splitlines()]
    kinds = [line["event"] for line in lines]
    assert kinds[:3] == ["planned", "compiling", "compiled"]
    assert [len(lines[0]["lines"]), lines[0]["geometry"]["total_steps"]] == [3, 512]
    assert {"progress", "evaluated"} <= set(kinds)
    assert kinds[-1] == "finished"
    last = lines[-1]
    assert (last["environment"], last["algorithm"], last["seed"]) == ("Probe2-v0", "ppo", 3)
    assert (last["steps"], last["trained"], last["stopped_by"]) == (512, 512, None)
    assert set(last["seconds"]) == {"compile", "train"}
    assert last["evaluation"]["episodes"] == 20
    # Without a mark there is no judgement.
    assert (last["solved"], last["solved_at"]) == (None, None)
    assert Path(last["run"]).is_dir()
    assert answer.err == ""


def test_resume_to_a_longer_run(trained, call, tmp_path: Path) -> None:
    folder = shutil.copytree(trained[0], tmp_path / "run")  # other tests look at the short one
    done = call("resume", folder)
    assert done.code == 0
    assert "has done its 2,048 steps already. To train longer: trimtab resume" in done.out
    assert json.loads(call("resume", folder, "--json").out)["trained"] == 0
    longer = call("resume", folder, "--total-steps", 3072, "--json")
    last = json.loads(longer.out.splitlines()[-1])
    assert (last["steps"], last["trained"]) == (3072, 1024)
    # The longer run is what the folder now says, so a further resume has nothing left to do.
    assert "has done its 3,072 steps already" in call("resume", folder).out
    assert "after 4,096 steps, 1,024 of them now, in " in (
        call("resume", folder, "--total-steps", 4096).out
    )


def test_resume_refuses_what_it_cannot_do(refused, tmp_path: Path, trained) -> None:
    folder, _ = trained
    assert "is not a run folder" in refused("resume", tmp_path / "none")
    assert "RUN is missing" in refused("resume")
    assert "Did you mean --total-steps?" in refused("resume", folder, "--total-step", 3)
    assert "out of bounds" in refused("resume", folder, "--total-steps", 0)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(
    call, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    sizes = [str(word) for word in QUICK]
    flags = ["--total-steps", "1e12", "--run-dir", str(run), *sizes]
    with subprocess.Popen(
        [sys.executable, "-m", "trimtab", "train", "Probe4-v0", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "1"},
    ) as process:
        metrics = run / "metrics.jsonl"
        until = time.monotonic() + 100
        while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "all of it is saved" in out
    assert out.endswith(f"go on with:  trimtab resume {run}\n")
    assert "Traceback" not in err
    assert "interrupted" in call("runs", "--dir", tmp_path).out
    assert call("eval", run, "--episodes", 2).code == 0
