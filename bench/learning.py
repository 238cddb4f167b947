"""Whether trimtab learns: each environment's preset, ten seeds, and the five probes.

For every seed of every environment: train to the end of the preset, evaluate on the way and at the
end, always deterministically, on episodes that training never saw (FrozenLake, whose score is a
share of successes, on 1000 episodes; the others on 100).

    solved      the final policy, after all the preset's steps, reaches the threshold. Not the best
                policy of the run: that would choose among evaluations by their luck
    steps       to the first evaluation that reached the threshold: environment steps until then
    seconds     of training until then, without compiling and without these evaluations
    score       of the final policies: mean over seeds, and the lowest

One process for each environment, with one compiled program for all its seeds, one after another, on
the devices that ``auto`` chooses. Presets were tuned on seeds from 100 on; these are 0 to 9.

Probes are processes with an empty compilation cache, timed from their start to the end of
``trimtab.train`` with the default settings for 100k steps. What they learnt is checked after that:
the greedy return against the optimum, and the critic against the values that can be written down.

    python bench/learning.py                          all of it
    python bench/learning.py --quick                  two seeds each
    python bench/learning.py --only Pendulum-v1       some environments
    python bench/learning.py --write                  also the table in docs/learning.md
"""

import dataclasses
import json
import math
import statistics
import subprocess
import sys
import time
from typing import Any

import harness
import sessions

EVALUATIONS = 60  # in a run, about
VALUE_TOLERANCE = 0.1
PROBE_SECONDS = 5.0
PROBE_STEPS = 100_000
PAGE = harness.REPOSITORY / "docs" / "learning.md"
BEGIN, END = "<!-- bench/learning.py -->", "<!-- end of bench/learning.py -->"


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment and what its runs are held to; shares are of the seeds."""

    env_id: str
    threshold: float
    share: float = 0.8
    median_steps: int | None = None
    episodes: int = 100

    def solved(self, score: float) -> bool:
        return score >= self.threshold


TASKS = (
    Task("CartPole-v1", 475.0, share=1.0, median_steps=45_000),
    Task("Pendulum-v1", -200.0),
    Task("Acrobot-v1", -100.0),
    Task("MountainCarContinuous-v0", 90.0),
    Task("MountainCar-v0", -110.0),
    Task("FrozenLake-v1", 0.70, episodes=1000),
)
PROBES = tuple(f"Probe{number}-v0" for number in range(1, 6))


# Workers: each of these runs in a process of its own.


def work_on_task(env_id: str, seeds: int, episodes: int) -> None:
    """Train every seed, and answer with all evaluations."""
    configuration = sessions.configured(env_id)
    session = sessions.opened(configuration)

    import jax
    import numpy as np

    updates, batch = session.schedule.updates, session.schedule.batch
    every = max(2, math.ceil(updates / EVALUATIONS))
    step = sessions.compiled_step(session, every)
    evaluate = sessions.evaluator(session, episodes)
    start = sessions.beginner(session)

    begun = time.perf_counter()
    warm, _ = step(session.algorithm, start(0), np.int32(1))
    evaluate(warm)
    compile_seconds = time.perf_counter() - begun

    runs = []
    for seed in range(seeds):
        run, done, seconds, curve = start(seed), 0, 0.0, []
        jax.block_until_ready(run)
        while done < updates:
            count = min(every, updates - done)
            begun = time.perf_counter()
            run, _ = jax.block_until_ready(step(session.algorithm, run, np.int32(count)))
            seconds += time.perf_counter() - begun
            done += count
            curve.append((done * batch, seconds, float(evaluate(run).mean())))
        runs.append({"seed": seed, "curve": curve})
    settings = configuration.training
    harness.answer(
        runs=runs,
        shape=f"{settings.num_envs}×{settings.num_steps}",
        compile_seconds=compile_seconds,
        devices=session.devices.devices,
        total_steps=updates * batch,
    )


def work_on_probe(env_id: str) -> None:
    """Train a probe by the public function, and compare what it learnt with what is right."""
    import trimtab

    with harness.temporary_folder() as folder:
        run = trimtab.train(env_id, run_dir=folder / "run", total_steps=PROBE_STEPS)
        trained_at = time.time()
        score = run.evaluate(episodes=100)["mean"]
        worst = sessions.worst_value_error(run, checkpoint="latest")
    harness.answer(score=score, worst_value_error=worst, trained_at=trained_at, **run.timing)


# Figures


def measure(task: Task, seeds: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--work", task.env_id, str(seeds), str(task.episodes)]
    found = answered(command)
    firsts = []
    for run in found["runs"]:
        reached = [point for point in run["curve"] if task.solved(point[2])]
        firsts.append(reached[0] if reached else (math.inf, math.inf, math.nan))
    scores = [run["curve"][-1][2] for run in found["runs"]]
    solved = sum(task.solved(score) for score in scores)
    steps = [first[0] for first in firsts]
    enough = solved >= math.ceil(task.share * seeds)
    fast = task.median_steps is None or statistics.median(steps) <= task.median_steps
    return {
        "environment": task.env_id,
        "threshold": task.threshold,
        "episodes": task.episodes,
        "seeds": seeds,
        "solved": solved,
        "needed": math.ceil(task.share * seeds),
        "median_steps_at_most": task.median_steps,
        "steps_to_solve": steps,
        "seconds_to_solve": [first[1] for first in firsts],
        "scores": scores,
        "reached": enough and fast,
        **found,
    }


def measure_probe(env_id: str) -> dict[str, Any]:
    from trimtab.envs.registry import entry_of

    entry = entry_of(env_id)
    assert entry is not None
    with harness.temporary_folder() as cache:
        begun = time.time()
        found = answered([sys.executable, __file__, "--probe", env_id], XDG_CACHE_HOME=str(cache))
        seconds = found["trained_at"] - begun
    # Where nothing that the agent does changes its return, only the critic can be wrong.
    scored = entry.solved_at is None or found["score"] >= entry.solved_at
    learnt = scored and found["worst_value_error"] <= VALUE_TOLERANCE
    return {
        "probe": env_id,
        "seconds": seconds,
        "threshold": entry.solved_at,
        "learnt": learnt,
        "reached": learnt and seconds < PROBE_SECONDS,
        **found,
    }


def answered(command: list[str], **changes: str) -> dict[str, Any]:
    """What a worker answers."""
    done = subprocess.run(
        command,
        env=harness.environment_for_workers(**changes),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        harness.stop(f"A worker failed: {' '.join(command)}\n{done.stderr[-3000:]}", code=1)
    return harness.last_json(done.stdout)


def steps_words(steps: float) -> str:
    if math.isinf(steps):
        return "never"
    return f"{steps / 1e6:.2f}M" if steps >= 1e6 else f"{steps / 1e3:.0f}k"


def seconds_words(seconds: float) -> str:
    return "never" if math.isinf(seconds) else f"{seconds:.2f}"


def score_words(score: float) -> str:
    return f"{score:.3f}" if abs(score) < 2 else f"{score:.1f}"


def task_cells(figures: dict[str, Any]) -> list[str]:
    """One line of the table of environments."""
    steps, scores = figures["steps_to_solve"], figures["scores"]
    need = f"{figures['needed']} of {figures['seeds']}"
    if figures["median_steps_at_most"]:
        need += f", median ≤ {steps_words(figures['median_steps_at_most'])}"
    return [
        figures["environment"],
        f"{figures['threshold']:g}",
        figures["shape"],
        f"{figures['solved']} of {figures['seeds']}",
        f"{steps_words(statistics.median(steps))} "
        f"({steps_words(min(steps))}–{steps_words(max(steps))})",
        seconds_words(statistics.median(figures["seconds_to_solve"])),
        f"{score_words(statistics.fmean(scores))} ({score_words(min(scores))})",
        steps_words(figures["total_steps"]),
        f"{need}: {harness.verdict(figures['reached'])}",
    ]


def probe_cells(figures: dict[str, Any]) -> list[str]:
    """One line of the table of probes."""
    threshold = figures["threshold"]
    return [
        figures["probe"],
        f"{figures['score']:.3f} (≥ {threshold:g})" if threshold else "chance",
        f"{figures['worst_value_error']:.3f}",
        f"{figures['seconds']:.1f}",
        f"< {PROBE_SECONDS:.0f} s: {harness.verdict(figures['reached'])}",
    ]


def report(tasks: list[dict[str, Any]], probes: list[dict[str, Any]]) -> str:
    """Both tables, as Markdown."""
    parts = []
    if tasks:
        heads = ["environment", "threshold", "N×T", "solved", "steps to solve: median (range)"]
        heads += ["seconds", "final score: mean (lowest)", "trained for", "asked for"]
        parts.append(harness.table(heads, [task_cells(one) for one in tasks]))
    if probes:
        heads = [
            "probe",
            "greedy return",
            "worst error of a value",
            "seconds from start to trained",
        ]
        parts.append(harness.table([*heads, "asked for"], [probe_cells(one) for one in probes]))
    return "\n\n".join(parts)


def write_page(text: str) -> None:
    """Put the tables between the markers of docs/learning.md, which are made if need be."""
    marked = f"{BEGIN}\n{text}\n{END}"
    page = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else "# What trimtab learns\n"
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and not end:
        harness.stop(f"{PAGE} has {BEGIN} without {END}: put the second where the tables end.")
    PAGE.parent.mkdir(exist_ok=True)
    whole = f"{before}{marked}{after}" if begin else f"{page.rstrip()}\n\n{marked}\n"
    PAGE.write_text(whole, encoding="utf-8")
    print(f"Written: {PAGE.relative_to(harness.REPOSITORY)}")


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work_on_task(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    if sys.argv[1:2] == ["--probe"]:
        work_on_probe(sys.argv[2])
        return
    parser = harness.arguments(__doc__)
    names = [*(task.env_id for task in TASKS), "probes"]
    parser.add_argument("--seeds", type=int, metavar="S", help="seeds of each (10; quick: 2)")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="ENV")
    parser.add_argument("--write", action="store_true", help="write the table in docs/learning.md")
    options = parser.parse_args()
    seeds = options.seeds or (2 if options.quick else 10)
    print(f"Learning, {seeds} seeds. {harness.machine_words()}")
    tasks, probes = [], []
    for task in TASKS:
        if task.env_id in options.only:
            tasks.append(measure(task, seeds))
            print("  " + " · ".join(task_cells(tasks[-1])), file=sys.stderr, flush=True)
    if "probes" in options.only:
        probes = [measure_probe(env_id) for env_id in PROBES]
    text = report(tasks, probes)
    print(f"\n{text}")
    if options.write:
        write_page(text)
    harness.write_figures(options.json, json.loads(json.dumps({"tasks": tasks, "probes": probes})))


if __name__ == "__main__":
    main()
