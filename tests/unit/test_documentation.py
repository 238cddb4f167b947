"""What the pages say can be typed can be typed, and what they link to is there."""

import re
import shlex
from pathlib import Path

import pytest

from trimtab.cli import explain, flags, train
from trimtab.cli.command import COMMANDS, main

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
# A placeholder or a shell's own sign: such a line shows a form, and is no command to copy.
FORM = re.compile(r"[…\[\]<>|]|\.\.\.|\b(ENV|RUN|DIR|FILE|NAME)\b")


def commands_in(text: str) -> list[str]:
    """The lines of a page's plain code blocks that begin with ``trimtab``."""
    blocks = [body for kind, body in FENCE.findall(text) if kind in ("", "sh", "bash", "console")]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    typed = [line.strip().removeprefix("$ ").partition("  #")[0].strip() for line in lines]
    return [line for line in typed if line.startswith("trimtab ")]


SHOWN = sorted({line for page in PAGES for line in commands_in(page.read_text(encoding="utf-8"))})


class ScannedError(Exception):
    """The arguments were accepted; the command need not run."""


@pytest.mark.parametrize("line", SHOWN)
def test_the_commands_of_the_pages_are_accepted(line, monkeypatch, capsys, tmp_path):
    """Each is read as far as its flags, with what it names replaced by nothing real."""
    words = shlex.split(line, comments=True)
    assert words[1] in COMMANDS or words[1].startswith("-"), line
    if FORM.search(line):
        return
    monkeypatch.chdir(tmp_path)
    scan = flags.scan

    def accept(command: flags.Command, arguments: list[str]) -> flags.Given:
        scan(command, arguments)
        raise ScannedError

    for module in (flags, train, explain):  # imported above: what is patched is put back
        monkeypatch.setattr(module, "scan", accept)
    try:
        code = main(words[1:])
    except ScannedError:
        return
    # What never comes to its flags must be help or a version.
    assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_of_the_pages_compiles(page):
    for kind, body in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            compile(body, f"{page.name}", "exec")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/library.md"])
def test_python_of_the_pages_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, body in FENCE.findall((REPOSITORY / name).read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(body, name, "exec"), {"__name__": "page"})
