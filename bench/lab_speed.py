"""What the gradient lab costs: its speed, its memory, and what watching adds to training.

speed      200 batches of 128 transitions of FrozenLake-v1, of a 64×64 actor and critic:
           collecting them, gradients per sample of actor, critic and entropy, and all that is
           kept of them, after compiling. The target is 20 seconds, for 4×32 and for 32×4.
memory     gradients per sample of an actor with a million parameters, for a batch of 1024×64 =
           65,536 transitions of CartPole-v1, with --memory 2: the peak resident size of the
           whole process. The target is 4 GB.
watching   CartPole-v1, 32×32, with --lab-every 50 beside the same run without: the compiled
           step of both in turns, in one process. The target is 3% more.

python bench/lab_speed.py                 all three: some minutes, most of them for the memory
python bench/lab_speed.py speed watching  some of them
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import harness
import memory
import sessions

SECONDS, PEAK, SHARE = 20.0, 4e9, 0.03
BATCHES, ROUNDS, EVERY, UPDATES = 200, 7, 50, 1000
SPLITS = ((4, 32), (32, 4))
WIDTH = 1000


def laboratory_of(env_id: str, settings: dict[str, Any], heads: Sequence[str], batches: int) -> Any:
    """A laboratory of a fresh policy, and its learner."""
    from trimtab.lab.batches import batches_of
    from trimtab.lab.engine import Conditions, Laboratory
    from trimtab.lab.plan import warm_up
    from trimtab.lab.subject import fresh_subject

    subject = fresh_subject(sessions.configured(env_id, settings))
    limit = subject.env.spec.max_episode_steps
    conditions = Conditions(tuple(heads), batches, "stationary", warm_up(limit, True), 2e9)
    source = batches_of(subject.env, subject.configuration.training)
    return Laboratory(source, subject.algorithm, conditions), subject.moments[0].learner


def work_speed() -> None:
    from trimtab.lab.plan import Split

    heads = ("actor", "critic", "entropy")
    laboratory, learner = laboratory_of("FrozenLake-v1", {"hidden_sizes": (64, 64)}, heads, BATCHES)
    seconds = {}
    for lanes, steps in SPLITS:
        split = Split(lanes, steps)
        laboratory.measure(learner, split, None)
        begun = time.perf_counter()
        measured = laboratory.measure(learner, split, None)
        seconds[str(split)] = time.perf_counter() - begun
        assert len(measured.heads["actor"].means) == BATCHES
    harness.answer(seconds=seconds)


def work_memory() -> None:
    import jax

    from trimtab.lab.batches import Request
    from trimtab.lab.plan import Split

    split = Split(1024, 64)
    settings = {"hidden_sizes": (WIDTH, WIDTH), "num_envs": 1024, "num_steps": 64}
    laboratory, learner = laboratory_of("CartPole-v1", settings, ("actor",), 20)
    algorithm = laboratory.at(learner, None)
    request = Request(split, 1, 1, "carried", 16)
    rollout, _ = next(iter(laboratory.source.groups(algorithm, learner, laboratory.root, request)))
    begun = time.perf_counter()
    reduced = laboratory.reduced(algorithm, learner, split, rollout, 0)
    jax.block_until_ready(reduced)
    parameters = laboratory.parameters("actor", learner)
    storage = laboratory.storage(split, parameters)
    harness.answer(
        peak=memory.peak_bytes(),
        seconds=time.perf_counter() - begun,
        parameters=parameters,
        sketch=storage.sketch,
        error=storage.error,
    )


def work_watching() -> None:
    """Updates in turns with and without watching."""
    import jax
    import numpy as np

    plain = {"num_envs": 32, "num_steps": 32, "hidden_sizes": (64, 64), "total_steps": 10**7}
    calls = []
    for every in (0, EVERY):
        session = sessions.opened(sessions.configured("CartPole-v1", {**plain, "lab_every": every}))
        step = sessions.compiled_step(session, EVERY)
        calls.append((session.algorithm, sessions.beginner(session)(0), step))
    seconds: list[list[float]] = [[], []]
    for number in range(ROUNDS + 1):
        for place, (algorithm, run, step) in enumerate(calls):
            begun = time.perf_counter()
            for _ in range(UPDATES // EVERY):
                run, _ = step(algorithm, run, np.int32(EVERY))
            jax.block_until_ready(run)
            if number > 0:  # the first one compiles
                seconds[place].append(time.perf_counter() - begun)
    harness.answer(plain=seconds[0], watched=seconds[1])


def measure(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--work", name],
        env=harness.environment_for_workers(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        harness.stop(f"The worker failed:\n{done.stderr[-3000:]}", code=1)
    return harness.last_json(done.stdout)


def row(name: str, found: dict[str, Any]) -> list[list[str]]:
    """What was measured, in words, beside its target."""
    if name == "speed":
        return [
            [f"200 batches of {split}", f"{one:.1f} s", "< 20 s", harness.verdict(one < SECONDS)]
            for split, one in found["seconds"].items()
        ]
    if name == "memory":
        what = (
            f"65,536 gradients of {found['parameters']:,} parameters, kept as {found['sketch']:,} "
            f"numbers (inner products within {100 * found['error']:.1f}%)"
        )
        figure = f"{found['peak'] / 1e9:.2f} GB, {found['seconds']:.0f} s"
        return [[what, figure, "< 4 GB", harness.verdict(found["peak"] < PEAK)]]
    shares = [w / p - 1 for p, w in zip(found["plain"], found["watched"], strict=True)]
    share = statistics.median(shares)
    words = f"{100 * share:.1f}% ({100 * min(shares):.1f}–{100 * max(shares):.1f}%)"
    return [[f"--lab-every {EVERY}", words, "≤ 3%", harness.verdict(share <= SHARE)]]


WORK = {"speed": work_speed, "memory": work_memory, "watching": work_watching}


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        WORK[sys.argv[2]]()
        return
    parser = harness.arguments(__doc__)
    parser.add_argument("names", nargs="*", metavar="PART", help=", ".join(WORK))
    options = parser.parse_args()
    names = options.names or (["speed"] if options.quick else list(WORK))
    for name in names:
        if name not in WORK:
            harness.stop(f"There is no part {name!r}: {', '.join(WORK)}.")
    print(f"The cost of the lab. {harness.machine_words()}")
    found = {name: measure(name) for name in names}
    rows = [line for name, one in found.items() for line in row(name, one)]
    print()
    print(harness.table(["what", "measured", "target", ""], rows))
    harness.write_figures(options.json, found)


if __name__ == "__main__":
    main()
