"""Flags: every setting has one, and every mistake has a sentence."""

import dataclasses
import re
from typing import Any, Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trimtab.algos.settings import ALGORITHMS
from trimtab.cli.flags import Command, Flag, flags_of, parse, scan
from trimtab.cli.train import command_for
from trimtab.configuration import default_configuration
from trimtab.errors import SettingError
from trimtab.settings import describe, setting, setting_names
from trimtab.training.config import TrainSettings

TRAIN = command_for(default_configuration("", "ppo"))
SPELLINGS = [flag.spelling for flag in TRAIN.flags if not flag.positional]


@dataclasses.dataclass(frozen=True)
class Example:
    rate: float = setting(0.5, "a number", above=0, at_most=1)
    count: int = setting(3, "a whole number", at_least=1)
    kind: Literal["fast", "slow"] = setting("fast", "a choice")
    sizes: tuple[int, ...] = setting((4, 4), "a list", at_least=1)
    target: float | None = setting(None, "a number, or none")
    enabled: bool = setting(True, "a switch")
    name: str = setting("x", "a text")


EXAMPLE = Command(
    "example",
    "An example.",
    [Flag("place", str, "", "where", metavar="PLACE", positional=True)],
    {"settings": flags_of(Example())},
)


def parsed(*arguments: str) -> dict[str, Any]:
    return parse(EXAMPLE, arguments)


def refusal(*arguments: str) -> str:
    with pytest.raises(SettingError) as caught:
        parse(EXAMPLE, arguments)
    return str(caught.value)


def test_without_flags_the_defaults_hold() -> None:
    assert parsed("here") == {"place": "here", **dataclasses.asdict(Example())}


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ("--rate 0.25", "rate", 0.25),
        ("--rate=1e-3", "rate", 1e-3),
        ("--rate 1", "rate", 1.0),
        ("--count 1e6", "count", 1_000_000),
        ("--count 1_000", "count", 1000),
        ("--kind slow", "kind", "slow"),
        ("--sizes 8 16 32", "sizes", (8, 16, 32)),
        ("--sizes 8", "sizes", (8,)),
        ("--sizes=8", "sizes", (8,)),
        ("--target -2.5", "target", -2.5),
        ("--target=-1e-3", "target", -1e-3),
        ("--target none", "target", None),
        ("--no-enabled", "enabled", False),
        ("--no-enabled --enabled", "enabled", True),
        ("--rate 0.1 --rate 0.2", "rate", 0.2),
        ("--name=--rate", "name", "--rate"),
        ("--name a=b", "name", "a=b"),
    ],
)
def test_values(arguments: str, name: str, value: object) -> None:
    words = arguments.split()
    for values in (parsed("here", *words), parsed(*words, "--count=3", "here")):
        if name != "count":
            assert values[name] == value
            assert type(values[name]) is type(value)
    assert parsed("here", *words)[name] == value


def test_underscores_are_hyphens() -> None:
    values = parse(TRAIN, ["CartPole-v1", "--learning_rate", "0.1", "--no_normalize_observations"])
    assert values["learning_rate"] == 0.1
    assert values["normalize_observations"] is False


def test_a_list_ends_where_the_positional_argument_begins() -> None:
    assert parsed("--sizes", "8", "9", "here")["sizes"] == (8, 9)
    assert "--sizes 8 nine" in refusal("here", "--sizes", "8", "nine")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("", "PLACE is missing: where."),
        ("here there", "'there' was not expected: PLACE is 'here' already."),
        (
            "here --rat 1",
            "There is no flag --rat. Did you mean --rate? `trimtab example --help` lists them all.",
        ),
        ("here -r 1", "There is no flag -r. `trimtab example --help` lists them all."),
        (
            "here --rate",
            "--rate needs a value: expected a number above 0 and at most 1 (a number).",
        ),
        (
            "here --rate --count 3",
            "--rate needs a value: expected a number above 0 and at most 1 (a number).",
        ),
        (
            "here --rate fast",
            "--rate fast is not valid: expected a number above 0 and at most 1.",
        ),
        (
            "here --rate 1.5",
            "--rate 1.5 is out of bounds: expected a number above 0 and at most 1.",
        ),
        (
            "here --rate -1",
            "--rate -1 is out of bounds: expected a number above 0 and at most 1.",
        ),
        (
            "here --rate nan",
            "--rate nan is out of bounds: expected a number above 0 and at most 1.",
        ),
        (
            "here --rate=",
            "--rate  is not valid: expected a number above 0 and at most 1.",
        ),
        ("here --target inf", "--target inf is out of bounds: expected a finite number."),
        ("here --count 2.5", "--count 2.5 is not valid: expected a whole number at least 1."),
        ("here --count 1e400", "--count 1e400 is not valid: expected a whole number at least 1."),
        ("here --count 0", "--count 0 is out of bounds: expected a whole number at least 1."),
        (
            "here --sizes 8 0",
            "--sizes 8 0 is out of bounds: expected a list of whole numbers, each at least 1.",
        ),
        (
            "here --sizes",
            "--sizes needs a value: expected a list of whole numbers, each at least 1 (a list).",
        ),
        (
            "here --kind slwo",
            "--kind slwo is not valid: expected one of 'fast', 'slow'. Did you mean 'slow'?",
        ),
        ("here --enabled yes", "--enabled takes no value: give --enabled or --no-enabled."),
        ("here --enabled=yes", "--enabled takes no value: give --enabled or --no-enabled."),
    ],
)
def test_mistakes(arguments: str, sentence: str) -> None:
    assert refusal(*arguments.split()) == sentence


@given(data=st.data())
def test_a_misspelt_flag_gets_a_suggestion(data: st.DataObject) -> None:
    spelling = data.draw(st.sampled_from(SPELLINGS))
    place = data.draw(st.integers(2, len(spelling) - 1))
    if data.draw(st.booleans()) or place == len(spelling) - 1:
        wrong = spelling[:place] + spelling[place + 1 :]
    else:
        wrong = spelling[:place] + spelling[place + 1] + spelling[place] + spelling[place + 2 :]
    assume(wrong not in SPELLINGS)
    with pytest.raises(SettingError, match=f"There is no flag {wrong}. Did you mean --") as caught:
        scan(TRAIN, ["CartPole-v1", wrong, "1"])
    named = re.findall(r"--[a-z0-9-]+", str(caught.value))[1:]
    # Without its last digit, --adam-beta1 is as near to --adam-beta2.
    assert spelling in named or spelling.rstrip("12") == wrong


def test_every_setting_is_in_the_help_with_its_default_and_bounds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for name, kind in ALGORITHMS.items():
        with pytest.raises(SystemExit) as caught:
            parse(command_for(default_configuration("", name)), ["--help"])
        assert caught.value.code == 0
        page = " ".join(capsys.readouterr().out.replace("│", " ").split())
        for settings in (TrainSettings(), kind()):
            fields = {field.name: field for field in dataclasses.fields(settings)}
            for setting_name in setting_names(settings):
                assert "--" + setting_name.replace("_", "-") in page
                assert describe(fields[setting_name]) in page
                default = getattr(settings, setting_name)
                if isinstance(default, (int, float)) and not isinstance(default, bool):
                    assert f"{describe(fields[setting_name])} (default: {default})" in page


def test_every_setting_can_be_given_back_as_it_was() -> None:
    """A flag reads what the help shows as its default: nothing is lost on the way."""
    for flag in TRAIN.flags:
        if flag.positional or flag.switch or flag.read or flag.default in ("", None):
            continue
        texts = [str(part) for part in flag.default] if flag.several else [str(flag.default)]
        texts = texts or ["none"]
        assert parse(TRAIN, ["X", flag.spelling, *texts])[flag.name] == flag.default
