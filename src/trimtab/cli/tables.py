"""``trimtab runs`` and ``trimtab envs``."""

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from trimtab.cli.flags import Command, Flag, parse
from trimtab.errors import RunFolderError, UnknownEnvironmentError, did_you_mean

JSON = Flag("json", bool, False, "for programs: one JSON object a line", pair=False)
RUNS = Command(
    "runs",
    "List the runs in a folder, the newest first.",
    [Flag("dir", str, "runs", "the folder that holds the runs", metavar="DIR"), JSON],
)
ENVS = Command(
    "envs",
    "List the environments that can be trained on by name.",
    [
        Flag(
            "filter",
            str,
            "",
            "only those with this text in the id, the backend or the summary; envpool: and "
            "gymnasium: list what those packages have",
            metavar="FILTER",
            positional=True,
            required=False,
        ),
        JSON,
    ],
)
# Wide enough for every column: what is not read on a terminal is not wrapped.
_UNLIMITED = 10_000


def runs_command(arguments: Sequence[str]) -> int:
    """``trimtab runs``"""
    values = parse(RUNS, arguments)

    from trimtab.cli.words import json_line
    from trimtab.log.progress import number
    from trimtab.training.rundir import list_runs

    folder = Path(values["dir"]).expanduser()
    if values["dir"] != "runs" and not folder.is_dir():
        raise RunFolderError(f"There is no folder {folder}: give one that holds runs with --dir.")
    runs = list_runs(folder)
    if values["json"]:
        for run in runs:
            print(json_line(dataclasses.asdict(run)))
        return 0
    if not runs:
        print(f"no runs in {folder} yet; to begin: trimtab train CartPole-v1", file=sys.stderr)
        return 0

    def figure(value: float | None) -> str:
        return "–" if value is None else number(value)

    def steps(done: int, planned: int | None) -> str:
        return f"{done:,}" if planned in (None, done) else f"{done:,} of {planned:,}"

    headings = ("run", "environment", "algo", ">steps", ">last return", ">best eval", "state")
    print_table(
        headings,
        (
            (
                str(run.path),
                run.environment or "–",
                run.algorithm or "–",
                steps(run.steps, run.total_steps),
                figure(run.last_return),
                figure(run.best_evaluation),
                run.state,
            )
            for run in runs
        ),
    )
    return 0


def envs_command(arguments: Sequence[str]) -> int:
    """``trimtab envs``"""
    values = parse(ENVS, arguments)

    from trimtab.cli.words import json_line
    from trimtab.envs.make import environments_of
    from trimtab.envs.registry import list_environments

    backend, colon, name = values["filter"].rpartition(":")
    every = environments_of(backend) if colon else list_environments()
    wanted = (name if colon else values["filter"]).lower()
    entries = [
        entry
        for entry in every
        if wanted in f"{entry.id} {entry.alias or ''} {entry.backend} {entry.summary}".lower()
    ]
    if not entries:
        raise UnknownEnvironmentError(
            f"No environment has {values['filter']!r} in its id, backend or summary."
            f"{did_you_mean(values['filter'], [entry.id for entry in every])}"
        )
    if values["json"]:
        for entry in entries:
            print(json_line(dataclasses.asdict(entry)))
        return 0
    print_table(
        ("id", "backend", "observation", "action", ">solved at", "what it is"),
        (
            (
                entry.id + (f" ({entry.alias})" if entry.alias else ""),
                entry.backend,
                entry.observation,
                entry.action,
                "–" if entry.solved_at is None else f"{entry.solved_at:g}",
                entry.summary,
            )
            for entry in entries
        ),
    )
    return 0


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout; a heading that begins with > is of a column of numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        numbers = heading.startswith(">")
        table.add_column(
            heading.removeprefix(">"),
            justify="right" if numbers else "left",
            no_wrap=numbers,
            overflow="fold",  # a name is there to be copied: never cut
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else _UNLIMITED, highlight=False)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())  # rich would end the process with an error where a pipe has closed
