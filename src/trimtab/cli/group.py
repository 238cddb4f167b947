"""``trimtab train ENV --seeds … --sweep …``, and ``trimtab resume`` of what it made."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.configuration import Configuration
from trimtab.errors import SettingError
from trimtab.training.members import Member, joined_sweep, members_of, read_seeds

if TYPE_CHECKING:
    from trimtab.groups import TrainedGroup
    from trimtab.log.progress import Progress


def group_members(
    configuration: Configuration, values: Mapping[str, Any], given: Mapping[str, Any]
) -> list[Member]:
    """The runs that ``--seeds`` and ``--sweep`` ask for; [] if neither was given."""
    if not values["seeds"] and not values["sweep"]:
        return []
    sweep = joined_sweep(values["sweep"])
    for name in sweep:
        if name in given:
            flag = "--" + name.replace("_", "-")
            raise SettingError(
                f"{flag} and --sweep {flag.removeprefix('--')}=… contradict each other: give one."
            )
    if values["seeds"] and "seed" in given:
        raise SettingError("--seed and --seeds contradict each other: give one of them.")
    seeds = read_seeds(values["seeds"]) if values["seeds"] else [configuration.training.seed]
    return members_of(configuration.algorithm, seeds, sweep)


def train_group_command(
    configuration: Configuration,
    members: list[Member],
    values: Mapping[str, Any],
    progress: "Progress",
) -> int:
    from trimtab.groups import train_members

    env, folder = configuration.env_id, values["run_dir"] or None
    group = train_members(configuration, members, env, folder, progress, values["grace"])
    return _conclude(group, values["json"])


def resume_group_command(
    path: Path, settings: Mapping[str, Any], values: Mapping[str, Any], progress: "Progress"
) -> int:
    from trimtab.groups import resume_group

    manner = {"strict": values["strict"], "grace": values["grace"]}
    return _conclude(resume_group(path, progress, **manner, **settings), values["json"])


def _conclude(group: "TrainedGroup", as_json: bool) -> int:
    """Say how each combination of values did over its seeds, and what can be done next."""
    from trimtab.cli import words

    if as_json:
        report = {"event": "finished", "group": group.path, "seconds": group.timing}
        print(words.json_line(report | group.document))
    elif group.stopped_by is not None:
        print(
            f"stopped by {words.signal_words(group.stopped_by)}; every run is saved\n"
            f"go on with:  {words.shell('trimtab', 'resume', group.path)}"
        )
    else:
        _print_summary(group)
    return 128 + signal.Signals[group.stopped_by] if group.stopped_by else 0


def _print_summary(group: "TrainedGroup") -> None:
    from trimtab.cli import words
    from trimtab.cli.tables import print_table
    from trimtab.log.progress import duration_words, number, rate_words

    mark = group.document["solved_at"]
    swept = list(group.summary[0]["values"])
    steps = sum(run.steps for run in group.runs)
    headings = [*(f">{name}" for name in swept), ">seeds", ">IQM", ">95% interval", ">lowest"]
    headings += [] if mark is None else [f">reach {mark:g} at the end", ">steps to first reach it"]
    rows = []
    for row in group.summary:
        interval = row["interval"]
        cells = [f"{row['values'][name]:g}" for name in swept]
        failed = f" ({row['failed']} failed)" if row["failed"] else ""
        cells += [f"{row['seeds']}{failed}", *(_figure(row[what]) for what in ("iqm",))]
        cells += ["–" if interval is None else "{} … {}".format(*map(number, interval))]
        cells += [_figure(row["min"])]
        if mark is not None:
            first = row["median_steps_to_solve"]
            cells += [
                f"{row['solved']} of {row['seeds']}",
                "–" if first is None else f"{first:,.0f}",
            ]
        rows.append(cells)
    print("mean return of the final policies, over seeds (IQM: mean of the middle half)")
    print_table(headings, rows)
    seconds = group.timing["train"]
    print(
        f"{len(group.runs)} runs, {steps:,} steps in {duration_words(seconds)} "
        f"({rate_words(steps / max(seconds, 1e-9))} steps/s; compiled in "
        f"{duration_words(group.timing['compile'])})"
    )
    print(f"the runs:    {words.shell('trimtab', 'runs', '--dir', group.path)}")
    first = group.runs[0].path
    print(f"one of them: {words.shell('trimtab', 'eval', first)}")


def _figure(value: float | None) -> str:
    from trimtab.log.progress import number

    return "–" if value is None else number(value)
