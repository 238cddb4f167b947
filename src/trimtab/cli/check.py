"""``trimtab check-env``."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimtab.cli.environments import ENV, ENV_OPTION, IMPORT, import_given
from trimtab.cli.flags import Command, Flag, parse
from trimtab.settings import Bounds

if TYPE_CHECKING:
    from trimtab.checking.findings import EnvReport, Finding

CHECK = Command(
    "check-env",
    "Look for what is wrong with an environment, by playing it with random actions through the "
    "adapters that training uses. The exit code is 1 if there are errors, 0 with warnings.",
    [
        ENV,
        ENV_OPTION,
        Flag("steps", int, 1_000, "steps of a play, at most [at least 1]", Bounds(at_least=1)),
        Flag("episodes", int, 100, "episodes of a play, at most [at least 1]", Bounds(at_least=1)),
        IMPORT,
        Flag("json", bool, False, "for programs: one JSON object, on one line", pair=False),
    ],
)
_MARKS = {"error": "✗ error", "warning": "! warning", "note": "· note"}


def check_env_command(arguments: Sequence[str]) -> int:
    """``trimtab check-env ENV``"""
    values = parse(CHECK, arguments)
    import_given(values["imports"])

    from trimtab.checking.check import check_env
    from trimtab.cli.words import json_line

    report = check_env(
        values["env"],
        options=dict(values["env_option"]),
        steps=values["steps"],
        episodes=values["episodes"],
    )
    if values["json"]:
        print(json_line(report.to_json()))
    else:
        _print(report)
    return 0 if report.ok else 1


def _print(report: "EnvReport") -> None:
    from trimtab.checking.findings import CHECKS
    from trimtab.cli.tables import print_table

    for line in _likeness(report):
        print(line)
    print()
    if report.findings:
        print_table(
            ("", "what", "where", "what to do"),
            ((_MARKS[one.level], _capital(one), one.where, one.advice) for one in report.findings),
        )
        print()
    if report.passed:
        print(f"✓ nothing wrong with: {', '.join(report.passed)}")
    found = {one.check for one in report.findings}
    if unseen := [name for name in CHECKS if name not in found and name not in report.passed]:
        print(f"– not looked at: {', '.join(unseen)}")
    print(_verdict(report))
    for finding in report.findings:
        if finding.traceback:
            sys.stdout.flush()
            print(f"\n{finding.traceback.rstrip()}", file=sys.stderr)
            return  # the first one: others are mostly the same


def _capital(finding: "Finding") -> str:
    return f"{finding.check}: {finding.what}"


def _verdict(report: "EnvReport") -> str:
    errors, warnings = len(report.errors), len(report.warnings)

    def words(count: int, name: str) -> str:
        return f"{count} {name}" + ("" if count == 1 else "s")

    both = f"{words(errors, 'error')}, {words(warnings, 'warning')}"
    return f"{both}: {'it can be trained on' if report.ok else 'not fit to be trained on yet'}"


def _likeness(report: "EnvReport") -> list[str]:
    """What it is like, a line for each thing."""
    from trimtab.checking.rules import duration
    from trimtab.log.progress import number, plus_minus

    figures = report.figures
    lines = [report.env_id]
    if not figures:
        return lines
    limit = figures["max_episode_steps"]
    lines += [
        f"  observation  {figures['observation']}",
        f"  action       {figures['action']}",
        f"  time limit   {f'{limit:,} steps' if limit else 'none'}",
    ]
    if "random_return_mean" in figures:
        error = figures["random_return_standard_error"]
        mean = figures["random_return_mean"]
        told = number(mean) if error is None else plus_minus(mean, error)
        lines.append(
            f"  at random    return {told} over {figures['episodes']:,} episodes of "
            f"{figures['random_length_mean']:.1f} steps"
        )
    if "step_seconds_median" in figures:
        lines.append(
            f"  a step       {duration(figures['step_seconds_median'])}, one in a hundred "
            f"{duration(figures['step_seconds_p99'])} or more"
        )
    if "reset_seconds_median" in figures:
        lines.append(f"  a reset      {duration(figures['reset_seconds_median'])}")
    return lines
