"""``trimtab import-sb3``."""

from collections.abc import Sequence

from trimtab.cli.environments import ENV_OPTION
from trimtab.cli.flags import Command, Flag, parse

IMPORT_SB3 = Command(
    "import-sb3",
    "Make a run of a policy that Stable-Baselines3's PPO saved. Nothing in the file is executed.",
    [
        Flag("file", str, "", "the zip file", metavar="FILE", positional=True),
        Flag("env", str, "", "the environment it acts in", metavar="ENV", positional=True),
        Flag("normalizer", str, "", "file that VecNormalize saved", metavar="FILE"),
        Flag("run_dir", str, "", "folder of the run, in place of one in runs/", metavar="DIR"),
        ENV_OPTION,
        Flag("json", bool, False, "for programs: one JSON object, on one line", pair=False),
    ],
)


def import_sb3_command(arguments: Sequence[str]) -> int:
    """``trimtab import-sb3 FILE ENV``"""
    values = parse(IMPORT_SB3, arguments)

    from trimtab.cli import words
    from trimtab.importing import import_sb3

    run = import_sb3(
        values["file"],
        values["env"],
        normalizer=values["normalizer"] or None,
        run_dir=values["run_dir"] or None,
        env_options=dict(values["env_option"]),
    )
    figures, solved_at = run.evaluations[-1], run.spec.solved_at
    if values["json"]:
        about = {"run": run.path, "environment": run.spec.id, "solved_at": solved_at}
        solved = words.is_solved(figures, solved_at)
        print(words.json_line({**figures, **about, "solved": solved}))
        return 0
    print(words.verdict(figures, solved_at))
    print(f"the run:     {run.path}")
    print(f"evaluate it: {words.shell('trimtab', 'eval', run.path)}")
    print(f"export it:   {words.shell('trimtab', 'export', run.path)}")
    return 0
