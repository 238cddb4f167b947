"""What is public is exported, loads, and is written down."""

import re
import tomllib
from pathlib import Path

import pytest

import trimtab
from trimtab.cli.command import COMMANDS

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
CHANGELOG = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")


def test_exported_names_load():
    for name in trimtab.__all__:
        assert getattr(trimtab, name) is not None
    assert set(dir(trimtab)) == set(trimtab.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        _ = trimtab.Trainer  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", [n for n in trimtab.__all__ if not n.startswith("_")])
def test_every_exported_name_is_in_the_pages_and_in_the_changelog(name):
    word = re.compile(rf"\b{name}\b")
    assert any(word.search(page.read_text(encoding="utf-8")) for page in PAGES), (
        f"trimtab.{name} is public, and no page of docs/ mentions it."
    )
    assert word.search(CHANGELOG), (
        f"trimtab.{name} is public, and CHANGELOG.md does not mention it."
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_pages_and_in_the_changelog(command):
    spelled = re.compile(rf"trimtab {command}\b")
    assert any(spelled.search(page.read_text(encoding="utf-8")) for page in PAGES)
    assert spelled.search(CHANGELOG)


def test_the_version_is_the_packages():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == trimtab.__version__
