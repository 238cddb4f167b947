"""What watching costs: evaluations, metrics, checkpoints and the display, at their defaults.

A whole training run beside the bare compiled step. Both make the same number of updates with the
same program; the whole run also records every update, evaluates, saves checkpoints and redraws the
display (on a stream that claims to be a terminal). Neither counts compiling; both count until the
last byte is written. The share is (whole − bare) / whole, of one round after the other in one
process; reported is that of the medians over rounds, and the range of rounds.

Of this, what metrics cost is told apart, beside a step from which no metric comes out, so that XLA
computes none:

    computing them   the bare step
    and writing      the bare step, and the ledger that writes the rows of one call while the device
                     works on the next, as in training

    CartPole-v1, 32×32, 1M steps      the target is for both
    CartPole-v1, its preset           a run of a few tenths of a second, so the sharper test

    python bench/overhead.py
"""

import dataclasses
import io
import statistics
import subprocess
import sys
import time
from typing import Any

import harness
import sessions

TARGET = 0.05
METRICS_TARGET = 0.02
CASES = {
    "32×32, 1M steps": {
        "num_envs": 32,
        "num_steps": 32,
        "total_steps": 1_000_000,
        "hidden_sizes": (64, 64),
    },
    "preset": {},
}


class Terminal(io.StringIO):
    """A stream that a live display takes for a terminal."""

    def isatty(self) -> bool:
        return True


def work(case: str, rounds: int) -> None:
    """Both kinds of run, in turns."""
    from trimtab.log.progress import Live

    configuration = sessions.configured("CartPole-v1", CASES[case])
    session = sessions.opened(configuration)
    found: dict[str, list[float]] = {"silent": [], "bare": [], "written": [], "whole": []}
    start, programs = session.compile()
    silent = sessions.step_without_metrics(session, session.schedule.capacity)
    bare(session, start, programs.step)
    for _ in range(rounds + 1):
        found["silent"].append(bare(session, start, silent))
        found["bare"].append(bare(session, start, programs.step))
        with harness.temporary_folder() as folder, sessions.recorder(session, folder) as record:
            found["written"].append(bare(session, start, programs.step, record))
        with harness.temporary_folder() as folder:
            seconds = sessions.whole_run(session, start, programs, folder, Live(Terminal()))
            found["whole"].append(seconds)
    harness.answer(
        **{name: seconds[1:] for name, seconds in found.items()},  # the first one imports, too
        updates=session.schedule.updates,
        steps=session.schedule.updates * session.schedule.batch,
        **dataclasses.asdict(session.devices),
    )


def bare(session: Any, start: Any, step: Any, record: Any = lambda *call: None) -> float:
    """Seconds of the compiled step alone, for all the updates of the run.

    ``record`` is told of each call once the next is on its way.
    """
    import jax
    import numpy as np

    schedule, run, done, last = session.schedule, start, 0, None
    begun = time.perf_counter()
    while done < schedule.updates:
        count = min(schedule.capacity, schedule.updates - done)
        run, metrics = step(session.algorithm, run, np.int32(count))
        if last is not None:
            record(*last)
        last = run, done, count, metrics
        done += count
    assert last is not None
    record(*last)
    jax.block_until_ready(run)
    return time.perf_counter() - begun


def share(more: float, less: float) -> float:
    return (more - less) / more


def measure(case: str, rounds: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--work", case, str(rounds)],
        env=harness.environment_for_workers(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        harness.stop(f"The worker failed:\n{done.stderr[-3000:]}", code=1)
    found = harness.last_json(done.stdout)
    pairs = {
        "all": ("whole", "bare"),
        "computed": ("bare", "silent"),
        "written": ("written", "silent"),
    }
    shares = {
        name: [share(*both) for both in zip(found[more], found[less], strict=True)]
        for name, (more, less) in pairs.items()
    }
    return {"case": case, **found, "shares": shares}


def share_words(shares: list[float]) -> str:
    return harness.ratio_words([100 * one for one in shares], "{:.1f}%")


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]))
        return
    options = harness.arguments(__doc__).parse_args()
    rounds = 3 if options.quick else 9
    print(f"The cost of watching, {rounds} rounds. {harness.machine_words()}")
    found = [measure(case, rounds) for case in CASES]
    rows = [
        [
            one["case"],
            f"{one['steps']:,}",
            harness.ratio_words(one["bare"], "{:.3f}"),
            harness.ratio_words(one["whole"], "{:.3f}"),
            share_words(one["shares"]["all"]),
            f"≤ {100 * TARGET:.0f}%",
            harness.verdict(statistics.median(one["shares"]["all"]) <= TARGET),
        ]
        for one in found
    ]
    heads = ["CartPole-v1", "steps", "bare step, s", "whole run, s", "share", "target", ""]
    print()
    print(harness.table(heads, rows))
    rows = [
        [
            one["case"],
            harness.ratio_words(one["silent"], "{:.3f}"),
            share_words(one["shares"]["computed"]),
            f"≤ {100 * METRICS_TARGET:.0f}%",
            harness.verdict(statistics.median(one["shares"]["computed"]) <= METRICS_TARGET),
            share_words(one["shares"]["written"]),
        ]
        for one in found
    ]
    heads = [
        "CartPole-v1",
        "step without metrics, s",
        "computing them",
        "target",
        "",
        "and writing",
    ]
    print()
    print(harness.table(heads, rows))
    harness.write_figures(options.json, {"cases": found, "target": TARGET})


if __name__ == "__main__":
    main()
