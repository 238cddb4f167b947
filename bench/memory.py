"""How much memory training takes: the peak resident size of a whole process.

``trimtab.train`` of CartPole-v1 with 2048 lanes × 128 steps (a rollout of 262,144 transitions) for
four updates, in a process of its own that writes a run folder as usual. The figure is the operating
system's peak for that process, everything included: Python, JAX, compiling, training; beside it
what the process had taken before it compiled. Once with an empty compilation cache and once with a
warm one, since compiling takes memory of its own.

    python bench/memory.py
"""

import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import harness

TARGET = 600e6
NUM_ENVS, NUM_STEPS, UPDATES = 2048, 128, 4


def peak_bytes() -> float:
    """The largest resident size of this process so far; macOS counts bytes, Linux kilobytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def work() -> None:
    """Train, and answer with the peaks."""
    import trimtab
    from trimtab.log.progress import Quiet

    before = []

    class Watch(Quiet):
        def compiling(self) -> None:
            before.append(peak_bytes())

    with harness.temporary_folder() as folder:
        trimtab.train(
            "CartPole-v1",
            run_dir=folder / "run",
            progress=Watch(),
            num_envs=NUM_ENVS,
            num_steps=NUM_STEPS,
            total_steps=UPDATES * NUM_ENVS * NUM_STEPS,
            minibatches=4,
            epochs=4,
            hidden_sizes=(64, 64),
        )
    harness.answer(peak=peak_bytes(), before=before[0])


def measure(cache: Path) -> dict[str, Any]:
    changes = {"XDG_CACHE_HOME": str(cache), "TRIMTAB_CACHE": None}
    done = subprocess.run(
        [sys.executable, __file__, "--work"],
        env=harness.environment_for_workers(JAX_COMPILATION_CACHE_DIR=None, **changes),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        harness.stop(f"The worker failed:\n{done.stderr[-3000:]}", code=1)
    return harness.last_json(done.stdout)


def cells(state: str, runs: list[dict[str, Any]]) -> list[str]:
    """One line of the table."""
    peaks, before = [run["peak"] for run in runs], [run["before"] for run in runs]
    middle = statistics.median(peaks)
    return [
        state,
        harness.ratio_words([peak / 1e6 for peak in peaks], "{:.0f}"),
        harness.ratio_words([size / 1e6 for size in before], "{:.0f}"),
        f"< {TARGET / 1e6:.0f}",
        f"{middle / TARGET:.2f}",
        harness.verdict(middle < TARGET),
    ]


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work()
        return
    options = harness.arguments(__doc__).parse_args()
    print(f"Memory of training at {NUM_ENVS}×{NUM_STEPS}. {harness.machine_words()}")
    found: dict[str, list[dict[str, Any]]] = {"empty": [], "warm": []}
    for _ in range(1 if options.quick else 3):
        with harness.temporary_folder() as cache:
            for state in found:  # the first run fills the cache for the second
                found[state].append(measure(cache))
    rows = [cells(state, runs) for state, runs in found.items()]
    heads = ["compilation cache", "peak, MB", "before compiling, MB", "target", "of the target"]
    print()
    print(harness.table([*heads, ""], rows))
    harness.write_figures(options.json, {"runs": found, "target": TARGET})


if __name__ == "__main__":
    main()
