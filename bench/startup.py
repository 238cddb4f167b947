"""How long a person waits: whole processes from the shell, as ``trimtab`` is typed.

    empty cache   ``trimtab train CartPole-v1`` with nothing compiled yet: to the verdict
    warm cache    the same, the second time
    help          ``trimtab --help``
    error         ``trimtab train`` with a misspelt environment: a sentence and exit code 2

The compilation cache is in a temporary folder (XDG_CACHE_HOME), the runs in another. Reported is
the median of several, with the range: a busy machine can only make a process slower.

    python bench/startup.py
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness

TRAIN = ("train", "CartPole-v1")
MISSPELT = ("train", "CartPol-v1")
# Name, arguments, exit code, seconds at most, how often (quick: a third of it).
CASES = (
    ("train, empty cache", TRAIN, 0, 6.0, 5),
    ("train, warm cache", TRAIN, 0, 2.0, 9),
    ("--help", ("--help",), 0, 0.3, 15),
    ("an error", MISSPELT, 2, 0.5, 15),
)


def program() -> list[str]:
    """The installed command, or the module where only the sources are at hand."""
    script = Path(sys.executable).with_name("trimtab")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "trimtab"]


def seconds_of(arguments: tuple[str, ...], code: int, cache: Path, folder: Path) -> float:
    """One process, from its start to its end."""
    command = [*program(), *arguments]
    environment = harness.environment_for_workers(
        XDG_CACHE_HOME=str(cache), JAX_COMPILATION_CACHE_DIR=None, TRIMTAB_CACHE=None
    )
    begun = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begun
    if done.returncode != code:
        shown = (done.stderr or done.stdout)[-2000:]
        harness.stop(f"{' '.join(command)} left with {done.returncode}, not {code}:\n{shown}", 1)
    return seconds


def measure(case: tuple[str, tuple[str, ...], int, float, int], quick: bool) -> dict[str, Any]:
    name, arguments, code, target, times = case
    found = []
    with harness.temporary_folder() as shared, harness.temporary_folder() as runs:
        if "warm" in name:
            seconds_of(arguments, code, shared, runs)
        for _ in range(max(1, times // 3) if quick else times):
            with harness.temporary_folder() as empty:
                cache = empty if "empty" in name else shared
                found.append(seconds_of(arguments, code, cache, runs))
    return {
        "case": name,
        "command": " ".join(["trimtab", *arguments]),
        "seconds": found,
        "target": target,
        "reached": statistics.median(found) <= target,
    }


def main() -> None:
    options = harness.arguments(__doc__).parse_args()
    print(f"Whole processes. {harness.machine_words()}")
    cases = [measure(case, options.quick) for case in CASES]
    rows = [
        [
            one["case"],
            one["command"],
            harness.ratio_words(one["seconds"]),
            f"≤ {one['target']:g}",
            f"{statistics.median(one['seconds']) / one['target']:.2f}",
            harness.verdict(one["reached"]),
        ]
        for one in cases
    ]
    print()
    print(harness.table(["", "command", "seconds", "target", "of the target", ""], rows))
    harness.write_figures(options.json, {"cases": cases})


if __name__ == "__main__":
    main()
