"""``trimtab train`` and ``trimtab resume``."""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trimtab.algos.settings import ALGORITHMS
from trimtab.cli.environments import ENV, ENV_OPTION, IMPORT, env_option, import_given
from trimtab.cli.flags import Command, Flag, flags_of, parse, scan, wants_help
from trimtab.cli.group import group_members, resume_group_command, train_group_command
from trimtab.collect.settings import HostSettings
from trimtab.configuration import Configuration, default_configuration
from trimtab.envs.make import entry_for
from trimtab.errors import TrimtabError
from trimtab.settings import Bounds, setting_names
from trimtab.training.members import Member, read_sweep

if TYPE_CHECKING:
    from trimtab.api import TrainedRun
    from trimtab.log.progress import Progress

DESCRIPTION = """\
Train a policy, evaluate it, and say whether the environment is solved.

Settings come from, lowest first: defaults, the environment's preset, --config, flags. The defaults
below are those for the environment and the file that stand beside --help."""

QUIET = Flag("quiet", bool, False, "no live display: only how it ended", pair=False)
JSON = Flag(
    "json", bool, False, "for programs: one JSON object a line, the result last", pair=False
)
GRACE = Flag(
    "grace",
    float,
    25.0,
    "seconds after a signal in which the run must have finished its update and be saved; then the "
    "process ends [above 0]",
    Bounds(above=0),
)


def command_for(configuration: Configuration) -> Command:
    """What ``trimtab train`` takes, with the defaults of a configuration."""
    return Command(
        "train", DESCRIPTION, [ENV, *own_flags(configuration), JSON], setting_flags(configuration)
    )


def own_flags(configuration: Configuration) -> list[Flag]:
    """The flags that are no settings of the run or of its algorithm."""
    return [
        Flag("algo", str, configuration.algorithm_name, f"algorithm: {', '.join(ALGORITHMS)}"),
        Flag("config", str, "", "TOML file of settings", metavar="FILE"),
        ENV_OPTION,
        Flag("run_dir", str, "", "folder of the run, in place of one in runs/", metavar="DIR"),
        Flag(
            "seeds",
            str,
            "",
            "train several seeds at once: 0:8 is 0 to 7; 0,3,5 is those",
            metavar="FIRST:END",
        ),
        Flag(
            "sweep",
            tuple,
            (),
            "train several values of a float of the algorithm at once, each with every seed, such "
            "as learning-rate=1e-4,3e-4,1e-3; may be given several times",
            metavar="NAME=VALUE,VALUE",
            read=read_sweep,
        ),
        Flag(
            "resume",
            Literal["never", "auto"],
            "never",
            "auto, with --run-dir: go on with the run that the folder holds, or begin it",
        ),
        GRACE,
        IMPORT,
        QUIET,
    ]


def setting_flags(configuration: Configuration) -> dict[str, list[Flag]]:
    """A flag for each setting, under headings."""
    of_run, host = flags_of(configuration.training), setting_names(HostSettings())
    return {
        "training": [flag for flag in of_run if flag.name not in host],
        "host_environments": [flag for flag in of_run if flag.name in host],
        configuration.algorithm_name: flags_of(configuration.algorithm),
    }


def train_command(arguments: Sequence[str]) -> int:
    """``trimtab train ENV ...``"""
    plain = default_configuration("", algorithm_named(arguments))
    if wants_help(arguments):
        parse(command_for(_for_help(plain, arguments)), arguments)
    given = scan(command_for(plain), arguments)
    import_given(given.get("imports"))
    configuration = _before_flags(plain, given)
    values = parse(command_for(configuration), arguments)
    names = [*setting_names(configuration.training), *setting_names(configuration.algorithm)]
    configuration = configuration.with_values({name: values[name] for name in names}, "flags")
    configuration = configuration.checked()
    members = group_members(configuration, values, given)
    from trimtab.continuing import goes_on

    if goes_on(values["resume"], values["run_dir"]):
        return _go_on(configuration, members, values)

    from trimtab.api import train_configuration

    with contextlib.closing(progress_of(values)) as progress:
        if members:
            return train_group_command(configuration, members, values, progress)
        run = train_configuration(
            configuration,
            configuration.env_id,
            values["run_dir"] or None,
            progress,
            grace=values["grace"],
        )
    return _conclude(run, steps_before=0, as_json=values["json"])


def _go_on(configuration: Configuration, members: list[Member], values: dict[str, Any]) -> int:
    """Go on with what the folder holds, if that is what was asked for."""
    from trimtab.continuing import require_run
    from trimtab.groups import require_group

    folder = Path(values["run_dir"]).expanduser()
    if members:
        require_group(folder, configuration, members)
    else:
        require_run(folder, configuration)
    total = configuration.training.total_steps
    return _resume({**values, "run": str(folder), "strict": False, "total_steps": total})


def algorithm_named(arguments: Sequence[str]) -> str:
    """The value of --algo, which decides what other flags there are."""
    name = "ppo"
    for position, argument in enumerate(arguments):
        if argument.startswith("--algo="):
            name = argument.partition("=")[2]
        elif argument == "--algo" and position + 1 < len(arguments):
            name = arguments[position + 1]
    return name


def _before_flags(plain: Configuration, given: dict[str, list[str]]) -> Configuration:
    """Defaults, preset and file; unknown environments are refused first."""
    env_id = given["env"][0]
    entry_for(env_id)
    options = dict(env_option(text) for text in given.get("env_option", []))
    configuration = default_configuration(env_id, plain.algorithm_name, options)
    if "config" in given:
        configuration = configuration.with_file(Path(given["config"][0]).expanduser())
    return configuration.with_env_options(options)


def _for_help(plain: Configuration, arguments: Sequence[str]) -> Configuration:
    """As far as the other arguments are right, the help shows the defaults that they lead to."""
    others = [argument for argument in arguments if argument not in ("-h", "--help")]
    try:
        return _before_flags(plain, scan(command_for(plain), others))
    except TrimtabError:
        return plain


RESUME = Command(
    "resume",
    "Go on with a run from its latest checkpoint, as if it had never stopped.",
    [
        Flag("run", str, "", "the run's folder", metavar="RUN", positional=True),
        Flag(
            "total_steps",
            int,
            None,
            "steps to train for, all in all [at least 1] (default: as before)",
            Bounds(at_least=1),
        ),
        Flag(
            "strict",
            bool,
            False,
            "refuse a damaged checkpoint, in place of going on from the one before it",
            pair=False,
        ),
        GRACE,
        IMPORT,
        QUIET,
        JSON,
    ],
)


def resume_command(arguments: Sequence[str]) -> int:
    """``trimtab resume RUN``"""
    values = parse(RESUME, arguments)
    import_given(values["imports"])
    return _resume(values)


def _resume(values: dict[str, Any]) -> int:
    from trimtab.api import resume, resume_point
    from trimtab.groups import group_resume_point
    from trimtab.training.groupdir import is_group

    total = values["total_steps"]
    settings = {} if total is None else {"total_steps": total}
    path = Path(values["run"]).expanduser()
    point = group_resume_point if is_group(path) else resume_point
    before, planned = point(path, **settings)
    if before >= planned:
        return _nothing_left(values, before, planned)
    with contextlib.closing(progress_of(values)) as progress:
        if is_group(path):
            return resume_group_command(path, settings, values, progress)
        run = resume(
            values["run"], progress, strict=values["strict"], grace=values["grace"], **settings
        )
    return _conclude(run, steps_before=before, as_json=values["json"])


def _nothing_left(values: dict[str, Any], steps: int, planned: int) -> int:
    from trimtab.cli.words import json_line, shell

    again = shell("trimtab", "resume", values["run"], "--total-steps", str(2 * steps))
    if values["json"]:
        print(json_line({"event": "finished", "run": values["run"], "steps": steps, "trained": 0}))
    else:
        print(f"{values['run']} has done its {planned:,} steps already. To train longer: {again}")
    return 0


def progress_of(values: dict[str, Any]) -> "Progress":
    """What watches the training: JSON for programs, a live line on a terminal, else nothing."""
    from trimtab.log.progress import Events, Live, Terse

    if values["json"]:
        return Events(sys.stdout)
    terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if terminal and not values["quiet"]:
        return Live(sys.stderr)
    return Terse(sys.stderr, quiet=values["quiet"])


def _conclude(run: "TrainedRun", steps_before: int, as_json: bool) -> int:
    """Evaluate, and say how it ended and what can be done next."""
    from trimtab.cli import words

    steps = run.steps
    report: dict[str, Any] = {
        "event": "finished",
        "run": run.path,
        "environment": run.spec.id,
        "algorithm": run.configuration.algorithm_name,
        "seed": run.configuration.training.seed,
        "steps": steps,
        "trained": steps - steps_before,
        "stopped_by": run.stopped_by,
        "seconds": run.timing,
    }
    if run.stopped_by is not None:
        if as_json:
            print(words.json_line(report))
        else:
            print(
                f"stopped by {words.signal_words(run.stopped_by)} "
                f"{words.effort(steps, steps - steps_before, run.timing)}; all of it is saved\n"
                f"go on with:  {words.shell('trimtab', 'resume', run.path)}"
            )
        return 128 + signal.Signals[run.stopped_by]
    evaluations = run.evaluations
    chosen_by = max(evaluations, key=lambda row: row["mean"])
    figures = run.final_evaluation or chosen_by
    solved_at = run.spec.solved_at
    first = words.first_solved(evaluations, solved_at)
    if as_json:
        report |= {
            "solved": words.is_solved(figures, solved_at),
            "solved_at": solved_at,
            "first_solved_at_steps": first,
            "evaluation": figures,
            "best_while_training": chosen_by,
        }
        print(words.json_line(report))
        return 0
    effort = words.effort(steps, steps - steps_before, run.timing)
    print(f"{words.verdict(figures, solved_at)}, {effort}")
    print(words.choice(chosen_by, len(evaluations)))
    if first is not None and first < steps:
        print(f"first evaluated at {solved_at:g} or better after {first:,} steps")
    if unfinished := words.unfinished_words(figures):
        print(unfinished)
    more = words.shell("trimtab", "resume", run.path, "--total-steps", str(2 * steps))
    print(f"the run:     {run.path}")
    print(f"evaluate it: {words.shell('trimtab', 'eval', run.path)}")
    print(f"train more:  {more}")
    return 0
