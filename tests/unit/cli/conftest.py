"""A command line to call in this process, and one short run for all tests that need one."""

import contextlib
import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from trimtab.cli import main


@dataclass
class Answer:
    code: int
    out: str
    err: str


Call = Callable[..., Answer]


def call_main(*arguments: object) -> Answer:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Answer(code, out.getvalue(), err.getvalue())


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """``call("train", "CartPole-v1")`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return call_main


@pytest.fixture
def refused(call: Call) -> Callable[..., str]:
    """The one sentence that a bad call is answered with."""

    def refused(*arguments: object) -> str:
        answer = call(*arguments)
        assert answer.code == 2
        assert answer.out == ""
        assert answer.err.startswith("trimtab: ")
        assert answer.err.count("\n") == 1, "one line"
        return answer.err.removeprefix("trimtab: ").rstrip("\n")

    return refused


@pytest.fixture
def python() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    def python(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False
        )

    return python


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    """A short run on CartPole, and what training it answered."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    answer = call_main(
        "train", "CartPole-v1", "--run-dir", folder, "--total-steps", 2048, "--hidden-sizes", 8
    )
    return folder, answer
