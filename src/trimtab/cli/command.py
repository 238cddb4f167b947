"""``trimtab``: finds the command that was asked for, and turns errors into sentences.

What a command needs is imported when it runs: ``trimtab --help`` answers before tyro, numpy or JAX
could have loaded.
"""

import errno
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence

from trimtab import __version__
from trimtab.errors import SettingError, TrimtabError, did_you_mean

# The module of each command, which holds a function of the command's name, and what it does.
COMMANDS = {
    "train": ("trimtab.cli.train", "train a policy, evaluate it, and say whether it is solved"),
    "explain": ("trimtab.cli.explain", "say what a configuration will do, and what may be wrong"),
    "eval": ("trimtab.cli.evaluate", "play whole episodes with the policy of a run"),
    "resume": ("trimtab.cli.train", "go on with a run that was stopped, or make it longer"),
    "reproduce": (
        "trimtab.cli.reproduce",
        "train a run again and compare all of its numbers, bit for bit",
    ),
    "diff": ("trimtab.cli.reproduce", "say what two runs differ in"),
    "export": ("trimtab.cli.export", "write the policy of a run to a file for use elsewhere"),
    "import-sb3": (
        "trimtab.cli.import_sb3",
        "make a run of a policy that Stable-Baselines3 trained",
    ),
    "sync": ("trimtab.cli.sync", "send what trackers missed of a run"),
    "lab": ("trimtab.cli.lab", "measure variance and bias of the gradient: lanes against steps"),
    "runs": ("trimtab.cli.tables", "list the runs in a folder"),
    "check-env": ("trimtab.cli.check", "look for what is wrong with an environment"),
    "bench-env": ("trimtab.cli.bench", "measure the ways in which an environment can be stepped"),
    "envs": ("trimtab.cli.tables", "list the environments"),
}
BAD_INPUT = 2
INTERRUPTED = 130  # as shells say it: 128 + SIGINT
CLOSED_PIPE = 141  # 128 + SIGPIPE
# What the system may refuse for reasons that the user can mend; other errors of it are bugs.
_MENDABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}

HELP = """\
usage: trimtab COMMAND ...

trimtab trains reinforcement-learning policies, and tells you why they do or do
not learn.

commands:
{commands}

options:
  -h, --help  show this help message and exit
  --version   show the version and exit

`trimtab COMMAND --help` says what a command takes.
To begin: trimtab train CartPole-v1
"""


def console() -> int:
    """``main``, in a process of its own.

    Tracing a program makes millions of small objects, among which there is little to collect; and
    at the end the system takes everything back faster than Python does, by a quarter of a second.
    """
    gc.set_threshold(200_000, 20, 20)
    code = main()
    gc.freeze()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± shows a question mark
    try:
        code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except TrimtabError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Nothing listens any more. Python would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except OSError as error:
        if error.errno not in _MENDABLE:
            raise
        where = f" {error.filename}" if error.filename else ""
        return _refuse(f"The system refused:{where}: {error.strerror}.".replace("::", ":"))


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS)) + 2
        lines = [f"  {name:{width}}{purpose}" for name, (_, purpose) in COMMANDS.items()]
        print(HELP.format(commands="\n".join(lines)), end="")
        return 0
    if arguments[0] in ("--version", "-V"):
        print(f"trimtab {__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        kind = "flag" if name.startswith("-") else "command"
        near = did_you_mean(name, [*COMMANDS, "--help", "--version"]).replace("'", "")
        raise SettingError(
            f"There is no {kind} {name!r}.{near} Commands are {', '.join(COMMANDS)}."
        )
    function = f"{name.replace('-', '_')}_command"
    command = getattr(importlib.import_module(COMMANDS[name][0]), function)
    try:
        return command(arguments[1:])
    except SystemExit as exit_:  # tyro has printed the help
        return exit_.code if isinstance(exit_.code, int) else 0


def _refuse(sentence: str) -> int:
    print(f"trimtab: {sentence}", file=sys.stderr)
    return BAD_INPUT
