"""What a checkpoint costs training: seconds for which the main thread is held up, and bytes.

A state of 10 MB is saved while a compiled step works on. The main thread waits for what was
computed, copies it to the host and hands it to the thread that writes; only the copy and the
hand-over are held against saving, so the state is waited for before the clock starts. The other
thread writes, hashes and flushes meanwhile; what it takes of the processor is in the second figure:
how much longer 50 updates take with a save in the middle of them. Then the checkpoint of CartPole's
preset, on the disk.

    python bench/saving.py
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness
import sessions

MEGABYTES = 10
TARGET_SECONDS = 0.010
TARGET_BYTES = 1_000_000
UPDATES = 50


def work(rounds: int) -> None:
    import jax
    import jax.numpy as jnp

    from trimtab.training.leaves import snapshot
    from trimtab.training.saver import Saver, Snapshot

    parts = 20  # leaves, as a network with its optimiser's moments has
    size = MEGABYTES * 1_000_000 // 4 // parts
    state = {f"part{n}": jnp.full(size, n, jnp.float32) for n in range(parts)}
    advance = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 0.999 + 0.001, tree))
    held, plain, saving = [], [], []
    with harness.temporary_folder() as folder, Saver() as saver:

        def updates(save: bool) -> float:
            tree, begun = state, time.perf_counter()
            for number in range(UPDATES):
                tree = jax.block_until_ready(advance(tree))
                if save and number == UPDATES // 2:
                    before = time.perf_counter()
                    leaves = snapshot({"learner": tree})
                    saver.submit(Snapshot(folder / "latest", leaves, {"update": number}, True))
                    held.append(time.perf_counter() - before)
            return time.perf_counter() - begun

        updates(save=True)
        saver.wait()
        held.clear()
        for _ in range(rounds):
            plain.append(updates(save=False))
            saving.append(updates(save=True))
            saver.wait()
    harness.answer(held=held, plain=plain, saving=saving, bytes=checkpoint_bytes())


def checkpoint_bytes() -> int:
    """Of CartPole's preset, on the disk, as ``latest`` has it."""
    from trimtab.training.leaves import snapshot
    from trimtab.training.saver import Snapshot

    session = sessions.opened(sessions.configured("CartPole-v1"))
    with harness.temporary_folder() as folder:
        place = folder / "latest"
        Snapshot(place, snapshot(session.begin()), {"update": 0}, False).write()
        return sum(path.stat().st_size for path in place.iterdir())


def measure(rounds: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, Path(__file__), "--work", str(rounds)],
        env=harness.environment_for_workers(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        harness.stop(f"The worker failed:\n{done.stderr[-3000:]}", code=1)
    return harness.last_json(done.stdout)


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(int(sys.argv[2]))
        return
    options = harness.arguments(__doc__).parse_args()
    rounds = 5 if options.quick else 30
    print(f"Saving {MEGABYTES} MB, {rounds} rounds. {harness.machine_words()}")
    found = measure(rounds)
    held, size = found["held"], found["bytes"]
    more = [s - p for s, p in zip(found["saving"], found["plain"], strict=True)]
    rows = [
        [
            f"main thread held up by {MEGABYTES} MB, ms",
            harness.ratio_words([1e3 * value for value in held], "{:.1f}"),
            f"< {1e3 * TARGET_SECONDS:.0f}",
            harness.verdict(statistics.median(held) < TARGET_SECONDS),
        ],
        [
            f"{UPDATES} updates take longer by, ms",
            harness.ratio_words([1e3 * value for value in more], "{:.1f}"),
            "–",
            "",
        ],
        [
            "a checkpoint of CartPole-v1, kB",
            f"{size / 1e3:.0f}",
            f"< {TARGET_BYTES / 1e3:.0f}",
            harness.verdict(size < TARGET_BYTES),
        ],
    ]
    print()
    print(harness.table(["what", "found (range)", "target", ""], rows))
    harness.write_figures(options.json, {**found, "target_seconds": TARGET_SECONDS})


if __name__ == "__main__":
    main()
