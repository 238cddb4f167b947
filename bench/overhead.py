"""What watching costs: evaluations, metrics, checkpoints and the display, at their defaults.

A whole training run beside the bare compiled step. Both make the same number of updates with the
same program; the whole run also records every update, evaluates, saves checkpoints and redraws the
display (on a stream that claims to be a terminal). Neither counts compiling; both count until the
last byte is written. The share is (whole − bare) / whole, of one round after the other in one
process; reported is that of the medians over rounds, and the range of rounds.

Of this, what metrics cost is told apart: the bare step beside one from which no metric comes out,
so that XLA computes none, and the seconds in which the host writes them down; both as a share of
the bare step.

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
    bare_seconds, silent_seconds, whole_seconds, recording = [], [], [], []
    start, programs = session.compile()
    silent = sessions.step_without_metrics(session, session.schedule.capacity)
    bare(session, start, programs.step)
    for number in range(rounds + 1):
        bare_seconds.append(bare(session, start, programs.step))
        silent_seconds.append(bare(session, start, silent))
        with harness.temporary_folder() as folder, sessions.RecordingTime() as recorded:
            seconds = sessions.whole_run(session, start, programs, folder, Live(Terminal()))
        if number > 0:  # the first one opens files and imports for the first time
            whole_seconds.append(seconds)
            recording.append(recorded.seconds)
    harness.answer(
        bare=bare_seconds[1:],
        silent=silent_seconds[1:],
        recording=recording,
        whole=whole_seconds,
        updates=session.schedule.updates,
        steps=session.schedule.updates * session.schedule.batch,
        **dataclasses.asdict(session.devices),
    )


def bare(session: Any, start: Any, step: Any) -> float:
    """Seconds of the compiled step alone, for all the updates of the run."""
    import jax
    import numpy as np

    schedule, run, done = session.schedule, start, 0
    begun = time.perf_counter()
    while done < schedule.updates:
        count = min(schedule.capacity, schedule.updates - done)
        run, _ = step(session.algorithm, run, np.int32(count))
        done += count
    jax.block_until_ready(run)
    return time.perf_counter() - begun


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
    whole, bare = statistics.median(found["whole"]), statistics.median(found["bare"])
    shares = [(w - b) / w for w, b in zip(found["whole"], found["bare"], strict=True)]
    parts = zip(found["bare"], found["silent"], found["recording"], strict=True)
    metrics = [(b - s + r) / b for b, s, r in parts]
    found |= {"share": (whole - bare) / whole, "shares": shares, "metrics": metrics}
    return {"case": case, **found}


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
            f"{100 * one['share']:.1f}% ({100 * min(one['shares']):.1f}–"
            f"{100 * max(one['shares']):.1f}%)",
            f"≤ {100 * TARGET:.0f}%",
            harness.verdict(one["share"] <= TARGET),
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
            harness.ratio_words([1e3 * seconds for seconds in one["recording"]], "{:.1f}"),
            harness.ratio_words([100 * share for share in one["metrics"]], "{:.1f}%"),
            f"≤ {100 * METRICS_TARGET:.0f}%",
            harness.verdict(statistics.median(one["metrics"]) <= METRICS_TARGET),
        ]
        for one in found
    ]
    heads = ["CartPole-v1", "step without metrics, s", "writing them, ms", "metrics", "target", ""]
    print()
    print(harness.table(heads, rows))
    harness.write_figures(options.json, {"cases": found, "target": TARGET})


if __name__ == "__main__":
    main()
