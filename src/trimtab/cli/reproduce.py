"""``trimtab reproduce`` and ``trimtab diff``."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.cli.environments import IMPORT, import_given
from trimtab.cli.flags import Command, Flag, parse
from trimtab.cli.train import QUIET, progress_of
from trimtab.settings import Bounds

if TYPE_CHECKING:
    from trimtab.reproduction import Reproduction
    from trimtab.training.comparison import Pairs

DIFFERENT = 1  # the exit code of a run that was not reproduced

JSON = Flag("json", bool, False, "for programs: one JSON object, the last line", pair=False)
REPRODUCE = Command(
    "reproduce",
    "Train a run or a group again and compare every metric and evaluation with it, bit for bit; "
    "all but time/… and system/…. Ends with code 1 if any differs.",
    [
        Flag("run", str, "", "the folder of the run or the group", metavar="RUN", positional=True),
        Flag(
            "updates",
            int,
            None,
            "compare only so many, from the first [at least 1] (default: all)",
            Bounds(at_least=1),
        ),
        Flag("run_dir", str, "", "keep the second run in this folder", metavar="DIR"),
        IMPORT,
        QUIET,
        JSON,
    ],
)
DIFF = Command(
    "diff",
    "Say what two runs differ in: settings, versions, machines, results, and where their numbers "
    "first differ.",
    [
        Flag("first", str, "", "the folder of a run", metavar="RUN", positional=True),
        Flag("second", str, "", "the folder of another", metavar="RUN", positional=True),
        Flag("json", bool, False, "for programs: one JSON object", pair=False),
    ],
)


def reproduce_command(arguments: Sequence[str]) -> int:
    """``trimtab reproduce RUN``"""
    values = parse(REPRODUCE, arguments)
    import_given(values["imports"])

    from trimtab.reproduction import reproduce

    with contextlib.closing(progress_of(values)) as progress:
        found = reproduce(
            values["run"],
            updates=values["updates"],
            run_dir=values["run_dir"] or None,
            progress=progress,
        )
    if values["json"]:
        from trimtab.cli.words import json_line

        print(json_line({"event": "finished", **_record(found)}))
    else:
        print("\n".join(_words(found)))
    return 0 if found.reproduced else DIFFERENT


def _record(found: "Reproduction") -> dict[str, Any]:
    return {
        "reproduced": found.reproduced,
        "run": found.run,
        "updates": found.updates,
        "evaluations": found.evaluations,
        "differences": {
            name: dataclasses.asdict(difference) for name, difference in found.differences.items()
        },
        "causes": list(found.causes),
        "folder": found.folder,
    }


def _words(found: "Reproduction") -> list[str]:
    if found.reproduced:
        lines = [
            f"reproduced: {found.updates:,} updates and {found.evaluations:,} evaluations of "
            f"{found.run} are the same, bit for bit"
        ]
    else:
        lines = [
            f"not reproduced: {name} differs first in {difference} (the run's and this one's)"
            for name, difference in found.differences.items()
        ]
        lines += [f"likely cause: {words}" for words in found.causes]
    if found.folder is not None:
        lines.append(f"the second run: {found.folder}")
    return lines


def diff_command(arguments: Sequence[str]) -> int:
    """``trimtab diff RUN RUN``"""
    values = parse(DIFF, arguments)

    from trimtab.cli import words
    from trimtab.reproduction import diff

    paths = [Path(values[name]).expanduser() for name in ("first", "second")]
    found = diff(*paths)
    if values["json"]:
        record = dataclasses.asdict(found)
        print(words.json_line({"first": paths[0], "second": paths[1], **record}))
        return 0
    _print_pairs("settings", found.settings)
    _print_pairs("versions, machine, devices and commit", found.circumstances)
    _print_pairs("results", found.results)
    if found.first_difference is not None:
        print(f"their numbers differ first in {found.first_difference}")
    elif found.updates:
        print(f"their numbers are the same, bit for bit, in the {found.updates:,} updates of both")
    return 0


def _print_pairs(title: str, pairs: "Pairs") -> None:
    from trimtab.cli.tables import print_table

    if not pairs:
        print(f"{title}: the same\n")
        return
    rows = [(name, _cell(first), _cell(second)) for name, (first, second) in pairs.items()]
    print_table((title, "first", "second"), rows)
    print()


def _cell(value: Any) -> str:
    from trimtab.log.progress import number

    if value is None:
        return "–"
    return number(value) if isinstance(value, float) and abs(value) > 1 else str(value)
