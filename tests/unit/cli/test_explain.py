"""``trimtab explain``, as a user calls it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.cli.command import COMMANDS
from trimtab.explain.rules import RULES

GUIDE = (
    "--from",
    "brax",
    *["num_timesteps=20_000_000", "num_envs=2048", "unroll_length=10", "num_minibatches=32"],
    *["num_updates_per_batch=4", "num_evals=10"],
)


def explained(call, *arguments) -> dict:
    answer = call("explain", *arguments, "--json")
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out)


def test_it_says_all_that_there_is_to_say(call) -> None:
    answer = call("explain", "CartPole-v1")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "PPO on CartPole-v1"
    assert max(map(len, lines)) <= 80
    names = {line.split()[0] for line in lines if line[:1].isalpha()}
    of_a_run = {"rollout", "update", "run", "discount", "advantages", "episodes", "evaluation"}
    assert of_a_run | {"memory", "work", "warnings"} <= names
    assert lines[-1] == "to do it    trimtab train CartPole-v1"
    assert "\x1b" not in answer.out


def test_the_json(call) -> None:
    found = explained(call, "CartPole-v1", "--num-envs", 16, "--gamma", 1.0)
    keys = "schema_version environment algorithm geometry costs warnings from to command"
    assert list(found) == keys.split()
    assert (found["environment"], found["algorithm"]) == ("CartPole-v1", "ppo")
    shape = found["geometry"]
    assert (shape["num_envs"], shape["num_steps"], shape["batch"]) == (16, 32, 512)
    assert shape["longest_episode"] == 500
    assert shape["horizon"] == "Infinity"
    assert set(found["costs"]) >= {"parameters", "rollout_bytes", "replay_bytes", "flops_per_step"}
    for warning in found["warnings"]:
        assert set(warning) == {"rule", "reason", "remedy", "source"}
    assert (found["from"], found["to"]) == (None, None)
    assert found["command"] == "trimtab train CartPole-v1 --num-envs 16 --gamma 1.0"


def test_without_an_environment_it_is_arithmetic_and_loads_no_jax() -> None:
    code = (
        "import sys; from trimtab.cli import main; "
        "main(['explain', '--num-envs', '6', '--minibatches', '5']); "
        "assert 'jax' not in sys.modules, 'JAX was imported'"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--minibatches 3 or 4 or 6" in done.stdout.decode()


def test_what_does_not_divide_is_explained_and_not_refused(call) -> None:
    found = explained(call, "CartPole-v1", "--minibatches", 3)
    first, *_ = found["warnings"]
    assert first["rule"] == "indivisible"
    assert "`trimtab train` refuses it" in first["reason"]
    assert found["costs"]["flops_per_step"] > 0


def test_what_does_not_fit_is_explained_and_not_refused(call) -> None:
    found = explained(call, "CartPole-v1", "--num-envs", 2**30)
    assert "too_large" in {warning["rule"] for warning in found["warnings"]}


def test_several_runs_at_once(call) -> None:
    found = explained(call, "Probe1-v0", "--seeds", "0:4", "--sweep", "learning-rate=1e-3,1e-2")
    assert found["geometry"]["runs"] == 8
    assert "8 at once" in call("explain", "Probe1-v0", "--seeds", "0:8").out


def test_environments_outside_of_the_compiled_program(call) -> None:
    found = explained(call, "gymnasium:CartPole-v1", "--num-envs", 8)
    assert found["environment"] == "gymnasium:CartPole-v1"
    assert found["geometry"]["longest_episode"] == 500
    assert found["costs"]["parameters"] == 9155


def test_an_episode_as_the_run_sees_it(call) -> None:
    found = explained(call, "CartPole-v1", "--action-repeat", 4)
    assert found["geometry"]["longest_episode"] == 125
    found = explained(call, "CartPole-v1", "--max-episode-steps", 50)
    assert found["geometry"]["longest_episode"] == 50


def test_a_run_and_what_it_does_not_go_with(trained, call, refused) -> None:
    folder, _ = trained
    found = explained(call, folder)
    assert found["environment"] == "CartPole-v1"
    assert found["geometry"]["total_steps"] == 2048
    assert found["costs"]["parameters"] > 0
    sentence = refused("explain", folder, "--num-envs", 8)
    assert "--num-envs has no effect on a run" in sentence
    # That sentence's advice can be followed.
    more = explained(call, "CartPole-v1", "--config", folder / "config.toml", "--num-envs", 64)
    assert more["geometry"]["num_envs"] == 64


def test_a_picture_is_written(call) -> None:
    answer = call("explain", "--svg", "picture.svg")
    assert answer.code == 0
    assert Path("picture.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert answer.out.splitlines()[-1] == "picture     picture.svg"


def test_from_brax(call) -> None:
    found = explained(call, *GUIDE, "batch_size=20480")
    assert found["geometry"]["batch"] == 6_553_600
    assert found["from"]["library"] == "brax"
    meant = explained(call, *GUIDE, "batch_size=64", "CartPole-v1")
    assert (meant["environment"], meant["geometry"]["batch"]) == ("CartPole-v1", 20_480)
    # A flag has the last word.
    assert explained(call, *GUIDE, "batch_size=64", "--epochs", 2)["geometry"]["epochs"] == 2


def test_the_command_does_what_the_words_say(call) -> None:
    there = explained(call, "CartPole-v1", "--from", "cleanrl", "num_envs=8", "clip_vloss=false")
    words = there["command"].split()[2:]
    again = explained(call, *words)
    assert again["geometry"] == there["geometry"]
    assert again["command"] == there["command"]


def test_to_another_library_and_back(call) -> None:
    to = explained(call, "Acrobot-v1", "--to", "sb3")
    words = [f"{name}={value}" for name, value in to["to"]["settings"].items()]
    back = explained(call, "--from", "sb3", *words)
    for name in ("num_envs", "num_steps", "minibatches", "epochs", "updates"):
        assert back["geometry"][name] == to["geometry"][name]
    assert "not said in these words: learning_rate_schedule." in to["to"]["notes"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("CartPol-v1", "Did you mean 'CartPole-v1'?"),
        ("CartPole-v1 --num-evns 8", "Did you mean --num-envs?"),
        ("CartPole-v1 --gamma 2", "out of bounds"),
        ("CartPole-v1 --algo poo", "no algorithm 'poo'"),
        ("--from brx num_envs=1", "Did you mean 'brax'?"),
        ("--from num_envs=1", "--from needs a library before its words"),
        ("--from brax sb3", "--from takes one library"),
        ("--from brax num_evns=1", "Did you mean 'num_envs'"),
        ("--from brax num_timesteps=1e6 num_envs=3000", "must be a multiple of num_envs"),
        ("--from sb3 total_timesteps=1e6 gamma=2", "--from sb3: gamma = 2 is out of bounds"),
        ("--from sb3 total_timesteps=1e6 --algo a2c", "--from sb3 is PPO"),
        ("--to sb4", "Did you mean 'sb3'?"),
        ("--to sb3 --algo a2c", "is PPO, and this is a2c"),
        ("--svg nowhere/x.svg", "nowhere/x.svg cannot be written: No such file"),
        ("CartPole-v1 --max-episode-steps 600", "has no effect"),
        ("CartPole-v1 --eval-every 2 --eval-count 3", "give one of them"),
        ("CartPole-v1 --seeds 0:x", "--seeds"),
        ("CartPole-v1 --num-workers 2", "has no effect"),
    ],
)
def test_mistakes(refused, arguments: str, sentence: str) -> None:
    assert sentence in refused("explain", *arguments.split())


def test_it_takes_what_train_takes(call) -> None:
    """So that a command can be explained as it stands."""
    for flags in ("--run-dir x --grace 3 --quiet --seed 4", "--config f.toml"):
        Path("f.toml").write_text("num_envs = 8\n", encoding="utf-8")
        assert call("explain", "Probe1-v0", *flags.split(), "--json").code == 0
    assert not Path("x").exists()


def test_it_is_a_command() -> None:
    assert list(COMMANDS)[:2] == ["train", "explain"]


DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_shows_what_is_printed(call) -> None:
    """But for the memory that happens to be free, and how lines break around it."""

    def masked(text: str) -> str:
        return re.sub(r"of \S+ \S+ that are free", "of it", " ".join(text.split()))

    page = (DOCS / "explain.md").read_text(encoding="utf-8")
    command, shown = (block.strip() for block in page.split("```")[1:4:2])
    answer = call(*command.split()[1:])
    assert masked(answer.out) == masked(shown)


def test_the_pages_picture_is_of_the_same(call) -> None:
    call("explain", "CartPole-v1", "--num-envs", 1024, "--num-steps", 8, "--svg", "picture.svg")
    drawn = Path("picture.svg").read_text(encoding="utf-8")
    assert drawn == (DOCS / "images" / "explain.svg").read_text(encoding="utf-8")


def test_the_page_lists_every_rule() -> None:
    page = (DOCS / "explain.md").read_text(encoding="utf-8")
    assert not [rule.__name__ for rule in RULES if f"`{rule.__name__}`" not in page]
