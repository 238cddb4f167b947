"""What two runs have in common: settings, versions, machines, and every number, bit for bit.

Figures of the machine (``time/…``, ``system/…``) differ between any two runs, and are left out.
No JAX here: what is compared is in the runs' files.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trimtab.log.names import MEASURED

Row = Mapping[str, Any]
Pairs = dict[str, tuple[Any, Any]]

_SETTINGS = ("environment", "algorithm_name", "training", "algorithm")
_CIRCUMSTANCES = ("versions", "machine", "devices", "git")


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first place where the numbers of two runs differ; None for a number that is missing."""

    update: int
    metric: str
    first: Any
    second: Any
    others: int  # further metrics that differ in the same update
    evaluation: bool = False  # of an evaluation; else of an update

    def __str__(self) -> str:
        what = "the evaluation after update" if self.evaluation else "update"
        more = f", and {self.others} more there" if self.others else ""
        return f"{what} {self.update}, in {self.metric} ({self.first!r} and {self.second!r}){more}"


def first_difference(
    metrics: tuple[Sequence[Row], Sequence[Row]],
    evaluations: tuple[Sequence[Row], Sequence[Row]] = ((), ()),
) -> Difference | None:
    """Where the rows of two runs first differ; only updates that both have are compared."""
    found = (_first(*metrics, evaluation=False), _first(*evaluations, evaluation=True))
    # Of one update, its metrics come before the evaluation of what it made.
    return min(filter(None, found), key=lambda one: (one.update, one.evaluation), default=None)


def _first(first: Sequence[Row], second: Sequence[Row], evaluation: bool) -> Difference | None:
    for ours, theirs in zip(first, second, strict=False):
        names = [name for name in {**ours, **theirs} if not name.startswith(MEASURED)]
        different = [name for name in names if not same(ours.get(name), theirs.get(name))]
        if different:
            name = different[0]
            update = min(int(row.get("update", 0)) for row in (ours, theirs))
            others = len(different) - 1
            return Difference(update, name, ours.get(name), theirs.get(name), others, evaluation)
    return None


def same(first: Any, second: Any) -> bool:
    """Whether two numbers are the same bits: −0 is not 0, and NaN is NaN."""
    return repr(first) == repr(second)


def settings_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Pairs:
    """The settings in which two ``config.toml`` differ."""
    return table_differences(first, second, _SETTINGS)


def circumstances_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Pairs:
    """The versions, machines, devices and commits in which two ``config.toml`` differ."""
    return table_differences(first, second, _CIRCUMSTANCES)


def table_differences(
    first: Mapping[str, Any], second: Mapping[str, Any], tables: Sequence[str]
) -> Pairs:
    """The entries of these tables in which two ``config.toml`` differ, as ``table.name``."""
    ours = {name: value for table in tables for name, value in _flat(table, first.get(table))}
    theirs = {name: value for table in tables for name, value in _flat(table, second.get(table))}
    return {
        name: (ours.get(name), theirs.get(name))
        for name in {**ours, **theirs}
        if not same(ours.get(name), theirs.get(name))
    }


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}", item)
    elif value is not None:
        yield name, value


def causes(
    first: Mapping[str, Any], second: Mapping[str, Any], steps: int, outside: bool
) -> list[str]:
    """Sentences on why a run (``first``) was not reproduced (``second``), the likeliest first.

    ``steps`` is where they differ, ``outside`` whether the environment is outside of the compiled
    program.
    """
    extra = first.get("extra", {})
    found = []
    if extra.get("reproducible") is False:
        found.append(
            "It collected first come, first served (vectorization = async), where the timing of "
            "workers decides what is learned from: such a run cannot be reproduced."
        )
    for entry in extra.get("resumed", []):
        if entry["steps"] <= steps:
            found.append(resumed_words(entry))
    different = circumstances_differences(first, second)
    for table, words in _WORDS.items():
        pairs = {
            name.partition(".")[2]: pair
            for name, pair in different.items()
            if name.startswith(f"{table}.")
        }
        if pairs:
            found.append(words(pairs))
    if not found and outside:
        found.append(
            "Nothing that is recorded differs. The environment may use random numbers that its "
            "seed does not reach, the time, or threads; or a file of the run was changed."
        )
    elif not found:
        found.append(
            "Nothing that is recorded differs: a file of the run was changed, or the hardware "
            "made a mistake."
        )
    return found


def resumed_words(entry: Mapping[str, Any]) -> str:
    """What a note in ``config.toml`` says, as a sentence."""
    parts = [
        f"with {name} = {new} in place of {old}"
        for name, (old, new) in entry.get("changed", {}).items()
    ]
    if entry.get("new_episodes"):
        parts.append("with new episodes")
    if entry.get("elsewhere"):
        parts.append(f"elsewhere ({', '.join(entry['elsewhere'])})")
    return f"It was resumed after {entry['steps']:,} steps {' and '.join(parts)}."


def _pair_words(pairs: Pairs) -> str:
    return ", ".join(f"{name} {_shown(old)} → {_shown(new)}" for name, (old, new) in pairs.items())


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


_WORDS: dict[str, Callable[[Pairs], str]] = {
    "versions": lambda pairs: f"Other versions: {_pair_words(pairs)}.",
    "machine": lambda pairs: (
        f"Another machine: {_pair_words(pairs)}. JAX's results on the CPU depend on the number of "
        "cores; the variable NPROC pins it."
    ),
    "devices": lambda pairs: f"Other devices: {_pair_words(pairs)}.",
    "git": lambda pairs: (
        f"The repository of the run was in another state: {_pair_words(pairs)}. What it holds of "
        "the environment may differ."
    ),
}
