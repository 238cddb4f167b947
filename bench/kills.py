"""A training process killed 500 times at random instants, which must end as if it never had been.

`trimtab train … --resume auto` is started, killed within its next updates and started again, until
it is done. Every metric, every evaluation and the digests of the final checkpoint's files are then
compared with those of a run that nobody killed. Three kills in four are SIGKILL, the others are
SIGTERM. A checkpoint is saved after every update, so that a save is under way at almost any
instant.

    python bench/kills.py
"""

import signal
import sys
import time

import harness

sys.path.insert(0, str(harness.REPOSITORY / "tests" / "support"))
import kills

APART = 12  # updates that a run makes, at most, before it is killed again


def main() -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--kills", type=int, default=500, metavar="N")
    options = parser.parse_args()
    wanted = 10 if options.quick else options.kills
    updates = 100 + wanted * APART
    signals = [signal.SIGTERM if n % 4 == 3 else signal.SIGKILL for n in range(wanted)]
    print(f"{wanted} kills of a run of {updates:,} updates. {harness.machine_words()}", flush=True)
    begun = time.perf_counter()
    with harness.temporary_folder() as folder:
        kills.whole_run(folder / "whole", updates)
        killed = kills.killed_run(folder / "killed", updates, signals, seed=0, apart=APART)
        whole, other = (kills.outcome(folder / name) for name in ("whole", "killed"))
    seconds = time.perf_counter() - begun
    same = whole == other
    rows = [
        [
            killed.kills,
            killed.while_training,
            killed.saves_torn,
            f"{seconds:.0f} s",
            harness.verdict(same and killed.kills >= 0.9 * wanted),
        ]
    ]
    heads = ["kills", "while it trained", "left half a save", "took", "the same, bit for bit"]
    print()
    print(harness.table(heads, rows))
    figures = {"kills": killed.kills, "torn": killed.saves_torn, "same": same, "seconds": seconds}
    harness.write_figures(options.json, figures)
    sys.exit(not same)


if __name__ == "__main__":
    main()
