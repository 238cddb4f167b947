"""``trimtab lab``."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.algos.settings import ALGORITHMS
from trimtab.cli.environments import env_option
from trimtab.cli.flags import Command, Flag, parse
from trimtab.configuration import default_configuration
from trimtab.envs.make import entry_for
from trimtab.errors import SettingError, UnknownEnvironmentError
from trimtab.lab import plan
from trimtab.settings import Bounds

if TYPE_CHECKING:
    from trimtab.lab.notebook import Notebook
    from trimtab.lab.subject import Subject
    from trimtab.training.signals import StopRequest

LAB = Command(
    "lab",
    "Measure the variance and the bias of the policy gradient, and what lanes × steps do to them.",
    [
        Flag(
            "target",
            str,
            "",
            "an environment, or a run's folder",
            metavar="ENV|RUN",
            positional=True,
        ),
        Flag("splits", str, "", "lanes × steps to compare, such as 4x32,32x4", metavar="LIST"),
        Flag("batches", int, 200, "independent batches of each [at least 20]"),
        Flag("lambdas", str, "", "values of lambda to compare, such as 0,0.95,1", metavar="LIST"),
        Flag("checkpoints", str, "best", "of a run: all, best, or a list", metavar="LIST"),
        Flag("heads", str, "actor,critic", "of actor, critic, entropy", metavar="LIST"),
        Flag("start", plan.Start, "stationary", "where lanes are when a batch begins"),
        Flag(
            "warm_up",
            int,
            0,
            "steps that lanes are carried on before a batch; 0: an episode's limit, or 200",
            Bounds(at_least=0),
        ),
        Flag(
            "memory",
            float,
            2.0,
            "gigabytes for gradients; what does not fit is sketched [above 0]",
            Bounds(above=0),
        ),
        Flag("seed", int, 0, "root of the random numbers", Bounds(at_least=0, at_most=2**31 - 1)),
        Flag("algo", str, "ppo", f"of a fresh policy: {', '.join(ALGORITHMS)}"),
        Flag("config", str, "", "of a fresh policy: TOML file of settings", metavar="FILE"),
        Flag(
            "env_option",
            tuple,
            (),
            "of a fresh policy: options of the environment",
            metavar="NAME=VALUE",
            read=env_option,
        ),
        Flag("out", str, "", "folder for lab.json and lab.html", metavar="DIR"),
        Flag("json", bool, False, "for programs: the content of lab.json", pair=False),
    ],
)
OF_A_FRESH_POLICY = ("algo", "config", "env_option")


def lab_command(arguments: Sequence[str]) -> int:
    """``trimtab lab ENV|RUN``"""
    values = parse(LAB, arguments)
    heads = tuple(name.strip() for name in values["heads"].split(",") if name.strip())
    splits = plan.parse_splits(values["splits"])
    traces = plan.parse_traces(values["lambdas"])
    plan.check_batches(values["batches"])
    subject = _subject(values)

    from trimtab.algos.gradients import check_heads
    from trimtab.lab import page
    from trimtab.lab.algorithms import check_algorithm
    from trimtab.lab.engine import Conditions
    from trimtab.lab.notebook import Notebook
    from trimtab.lab.survey import Survey, Wanted
    from trimtab.training.signals import StopRequest

    check_heads(heads)
    check_algorithm(subject.algorithm, traces)
    own = subject.own_split
    wanted = Wanted(splits or plan.default_splits(own.samples, own), traces or (None,))
    plan.check_splits(wanted.splits, getattr(subject.algorithm, "minibatches", 1))
    groups, size = plan.grouping(values["batches"])
    conditions = Conditions(
        heads,
        groups * size,
        values["start"],
        values["warm_up"] or plan.warm_up(subject.env.spec.max_episode_steps, subject.is_compiled),
        values["memory"] * 1e9,
        values["seed"],
    )
    if values["warm_up"] and values["start"] == "fresh":
        raise SettingError(
            f"--warm-up {values['warm_up']} has no effect with --start fresh, whose lanes are at "
            "the first step of an episode: leave one of them out."
        )
    folder = Path(values["out"] or _default_folder(subject)).expanduser()
    settings = {
        "source": subject.source,
        "environment": subject.env.spec.id,
        "algorithm": subject.configuration.algorithm_name,
        "checkpoints": [moment.name for moment in subject.moments],
        "splits": [str(split) for split in wanted.splits],
        "lambdas": list(traces),
        "heads": list(heads),
        "batches": conditions.batches,
        "start": conditions.start,
        "warm_up": conditions.warm_up,
        "memory_gigabytes": values["memory"],
        "seed": conditions.seed,
    }
    notebook = Notebook.open(folder / "lab.json", settings, _command(arguments))
    survey = Survey(subject, wanted, conditions)
    # A signal is heard between two computations: an interpreter that ends while one of them is
    # still under way may crash.
    with StopRequest() as stop:
        try:
            survey.go(notebook, _Watch(values["json"], stop))
        except KeyboardInterrupt:
            print(
                f"\n{len(notebook.cells)} of {survey.size} measurements are in {notebook.path}: "
                "the same command goes on from there.",
                file=sys.stderr,
            )
            if stop.requested is None:
                raise
            return 128 + stop.requested
        finally:
            if notebook.cells:
                page.write(notebook.content, folder / "lab.html")
    return _report(notebook, values["json"])


def _subject(values: dict[str, Any]) -> "Subject":
    """What is to be measured. A run brings its own algorithm and settings."""
    target = values["target"]
    from trimtab.lab import subject

    if subject.is_run(target):
        defaults = {flag.name: flag.default for flag in LAB.own}
        for name in OF_A_FRESH_POLICY:
            if values[name] != defaults[name]:
                raise SettingError(
                    f"--{name.replace('_', '-')} has no effect on a run, which has its own: "
                    "leave it out."
                )
        return subject.run_subject(target, values["checkpoints"])
    if values["checkpoints"] != "best":
        raise SettingError(
            f"--checkpoints is of runs, and {target} is no run's folder: expected a folder that "
            "`trimtab train` made."
        )
    try:
        entry_for(target)
    except UnknownEnvironmentError:
        if Path(target).expanduser().exists():
            raise SettingError(
                f"{target} is no run's folder, and no environment: expected a folder that "
                "`trimtab train` made (it has a config.toml), or what `trimtab envs` lists."
            ) from None
        raise
    configuration = default_configuration(target, values["algo"])
    if values["config"]:
        configuration = configuration.with_file(Path(values["config"]).expanduser())
    configuration = configuration.with_env_options(dict(values["env_option"]))
    return subject.fresh_subject(configuration.checked())


def _default_folder(subject: "Subject") -> Path:
    source = Path(subject.source)
    if source.is_dir():
        return source / "lab"
    return Path("lab") / f"{subject.source}-{subject.configuration.algorithm_name}"


def _command(arguments: Sequence[str]) -> str:
    from trimtab.cli.words import shell

    return shell("trimtab", "lab", *(argument for argument in arguments if argument != "--json"))


class _Watch:
    """Progress on a terminal: what is measured, how far, and the time that is left.

    It is told of every step of a survey, and so ends it where a signal asked for that.
    """

    def __init__(self, quiet: bool, stop: "StopRequest"):
        from trimtab.log.progress import Clock, Output

        self._stop = stop
        self._shown = sys.stderr.isatty() and not quiet
        self._out = Output(sys.stderr)
        self._clock = Clock(0.2)
        self._began: tuple[float, int] | None = None

    def __call__(self, done: int, whole: int, what: str) -> None:
        from trimtab.log.progress import duration_words

        if self._stop.requested is not None:
            raise KeyboardInterrupt
        now = time.monotonic()
        if self._began is None:
            self._began = now, done  # what went before was compiling, or an earlier survey
        if not self._shown or not (self._clock.due() or done == whole):
            return
        before, first = self._began
        left = ""
        if done > first:
            left = f" · {duration_words((now - before) / (done - first) * (whole - done))} left"
        end = "\n" if done == whole else ""
        self._out.write(f"\r\x1b[2Kmeasuring {what} · {100 * done // whole}%{left}{end}")


def _report(notebook: "Notebook", as_json: bool) -> int:
    """The tables and the advice, and where the rest is. 2 where there was nothing to measure."""
    content = notebook.content
    measured = {
        cell["checkpoint"]
        for cell in content["cells"]
        if not all(head["zero"] for head in cell["heads"].values())
    }
    code = 0 if measured else 2
    if as_json:
        from trimtab.cli.words import json_line

        print(json_line(content))
        return code
    from trimtab.cli.lab_tables import print_head, print_within_an_update

    for moment in content["moments"]:
        for head in content["settings"]["heads"]:
            print_head(content, moment, head)
        if moment["name"] in measured:
            print_within_an_update(moment)
        for cell in content["cells"]:
            if cell["checkpoint"] == moment["name"] and "refusal" in cell:
                print(f"{cell['lanes']}×{cell['steps']}: {cell['refusal']}")
        for advice in content["advice"]:
            if advice["checkpoint"] == moment["name"]:
                of = "" if advice["trace"] is None else f"λ = {advice['trace']:g}: "
                print(f"{of}{advice['sentence']}")
        print()
    print(f"figures: {notebook.path}\npage:    {notebook.path.with_suffix('.html')}")
    return code
