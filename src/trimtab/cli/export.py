"""``trimtab export``."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from trimtab.cli.flags import Command, Flag, parse

EXPORT = Command(
    "export",
    "Write the policy of a run to a file for use elsewhere. It takes raw observations and gives "
    "actions as the environment takes them, and is checked against trimtab's own outputs first.",
    [
        Flag("run", str, "", "the run's folder", metavar="RUN", positional=True),
        Flag("to", Literal["onnx", "safetensors", "numpy"], "onnx", "format of the file"),
        Flag("out", str, "", "the file (default: policy.… in the run's folder)", metavar="FILE"),
        Flag("checkpoint", str, "best", "best, latest, or a folder", metavar="NAME"),
        Flag("json", bool, False, "for programs: one JSON object, on one line", pair=False),
    ],
)


def export_command(arguments: Sequence[str]) -> int:
    """``trimtab export RUN``"""
    values = parse(EXPORT, arguments)

    from trimtab.api import load
    from trimtab.training.memory import size_words

    made = load(values["run"]).export(values["to"], values["out"] or None, values["checkpoint"])
    if values["json"]:
        from trimtab.cli.words import json_line

        print(json_line(dataclasses.asdict(made)))
        return 0
    print(
        f"{made.path}: {size_words(made.size)}; its actions differ from the policy's by at most "
        f"{made.difference:.1g} on {made.samples} random observations"
    )
    return 0
