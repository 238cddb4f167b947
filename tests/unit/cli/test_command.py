"""The command as a whole: help, errors, exit codes, and what is imported for them."""

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import trimtab
from trimtab.cli import command
from trimtab.cli.command import COMMANDS
from trimtab.errors import TrimtabError

HEAVY = ("jax", "gymnax", "gymnasium", "equinox", "optax", "scipy", "matplotlib", "rich", "tyro")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_help_names_every_command(call, arguments: tuple[str, ...]) -> None:
    answer = call(*arguments)
    assert answer.code == 0
    assert all(f"  {name}" in answer.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(call, name: str) -> None:
    answer = call(name, "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"usage: trimtab {name} ")
    assert answer.err == ""


def test_version(call) -> None:
    assert call("--version").out == f"trimtab {trimtab.__version__}\n"


def test_misspelt_commands_and_flags(refused) -> None:
    assert "There is no command 'trian'. Did you mean train?" in refused("trian")
    assert "There is no flag '--hlep'. Did you mean --help?" in refused("--hlep")


def _answers_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(command, "_dispatch", fail)


def test_errors_meant_for_users_have_no_traceback(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    _answers_with(monkeypatch, TrimtabError("A sentence."))
    assert refused() == "A sentence."
    _answers_with(monkeypatch, OSError(errno.ENOSPC, "No space left on device", "runs/x"))
    assert refused() == "The system refused: runs/x: No space left on device."
    _answers_with(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    assert refused() == "The system refused: No space left on device."


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), OSError(errno.EBADF, "a bug")])
def test_other_errors_keep_their_traceback(
    call, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    _answers_with(monkeypatch, error)
    with pytest.raises(type(error)):
        call()


def test_an_interrupt_is_no_traceback(call, monkeypatch: pytest.MonkeyPatch) -> None:
    _answers_with(monkeypatch, KeyboardInterrupt())
    answer = call()
    assert (answer.code, answer.err) == (130, "Interrupted.\n")


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ("--help", ()),
        ("--version", ()),
        ("trian", ()),
        ("train --help", ("tyro",)),
        ("train CartPole-v1 --learnin-rate 1", ()),
        ("train CartPole-v1 --learning-rate 2", ("tyro",)),
        ("train CartPol-v1", ("gymnasium",)),  # it may be one of Gymnasium's
        ("train CartPole-v1 --minibatches 7", ("tyro",)),
        ("train CartPole-v1 --config missing.toml", ()),
        ("eval missing", ()),
        ("resume missing", ()),
        ("runs", ()),
        ("envs", ("rich",)),
    ],
)
def test_answers_that_need_no_training_import_little(
    python,
    arguments: str,
    allowed: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where nobody has trained: runs are listed in a table
    script = (
        "import sys\n"
        "from trimtab.cli import main\n"
        f"code = main({arguments.split()!r})\n"
        f"print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.rpartition("LOADED")[2].split()
    assert set(loaded) <= set(allowed)


def test_python_m_trimtab(python) -> None:
    done = python("-m", "trimtab", "envs", "nothing-like-it")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("envs",), ("envs", "--json"), ("train", "--help"), ()])
def test_a_closed_pipe_ends_quietly(arguments: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trimtab", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before anything was read
        assert process.stderr.read() == b""
    assert process.returncode in (0, 141)


def test_a_terminal_without_unicode_is_no_error(
    python: Callable[..., "subprocess.CompletedProcess[str]"],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    for arguments in (("envs",), ("train", "--help"), ("runs", "--dir", str(tmp_path))):
        done = python("-m", "trimtab", *arguments)
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_eighty_columns_and_json_is_everywhere(call, monkeypatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = call(*name.split(), "--help")
    assert answer.code == 0
    wide = [line for line in answer.out.splitlines() if len(line) > 80]
    assert not wide
    assert not name or "--json" in answer.out


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelt_flag_is_answered_with_the_nearest(refused, name: str) -> None:
    assert "Did you mean --json?" in refused(name, "--jsno")
