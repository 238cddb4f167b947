"""``trimtab eval``."""

import sys
from collections.abc import Sequence

from trimtab.cli.environments import IMPORT, import_given
from trimtab.cli.flags import Command, Flag, parse
from trimtab.errors import CheckpointError
from trimtab.settings import Bounds

EVAL = Command(
    "eval",
    "Play whole episodes with the policy of a run, on seeds that its training never used.",
    [
        Flag("run", str, "", "the run's folder", metavar="RUN", positional=True),
        Flag("episodes", int, 20, "episodes to play [at least 1]", Bounds(at_least=1)),
        Flag(
            "seed",
            int,
            0,
            "root of the random numbers [at least 0 and at most 2147483647]",
            Bounds(at_least=0, at_most=2**31 - 1),
        ),
        Flag("stochastic", bool, False, "sample actions, in place of the best ones", pair=False),
        Flag("checkpoint", str, "best", "best, latest, or a folder", metavar="NAME"),
        IMPORT,
        Flag("json", bool, False, "for programs: one JSON object, on one line", pair=False),
    ],
)


def eval_command(arguments: Sequence[str]) -> int:
    """``trimtab eval RUN``"""
    values = parse(EVAL, arguments)
    import_given(values["imports"])

    from trimtab.api import load
    from trimtab.cli import words
    from trimtab.log.progress import number
    from trimtab.training.checkpoint import exists

    run = load(values["run"])
    checkpoint = values["checkpoint"]
    if checkpoint == "best" and not exists(run.folder.checkpoint_path("best")):
        # A run that was stopped before its first evaluation.
        if not exists(run.folder.checkpoint_path("latest")):
            begin = words.shell("trimtab", "resume", run.path)
            raise CheckpointError(
                f"The run {run.path} was stopped before it had saved anything. To begin it again: "
                f"{begin}"
            )
        print("there is no best checkpoint yet; this is the latest", file=sys.stderr)
        checkpoint = "latest"
    figures = run.evaluate(
        episodes=values["episodes"],
        seed=values["seed"],
        deterministic=not values["stochastic"],
        checkpoint=checkpoint,
    )
    solved_at = run.spec.solved_at
    if values["json"]:
        solved = words.is_solved(figures, solved_at)
        about = {"run": run.path, "environment": run.spec.id, "solved_at": solved_at}
        print(words.json_line({**figures, **about, "solved": solved}))
        return 0
    print(words.verdict(figures, solved_at))
    names = ("median", "std", "iqr", "iqm", "min", "max")
    print(", ".join(f"{name} {number(figures[name])}" for name in names))
    print(f"mean length {number(figures['length_mean'])} steps")
    if unfinished := words.unfinished_words(figures):
        print(unfinished)
    actions = "sampled" if values["stochastic"] else "the best"
    print(f"checkpoint {figures['checkpoint']}, seed {figures['seed']}, actions: {actions}")
    return 0
