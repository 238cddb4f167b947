"""Whether trimtab learns: presets, over several seeds, and the five probes.

For every seed of every task: train to the end of the preset, evaluate on the way and at the
end, always deterministically, on episodes that training never saw (FrozenLake, whose score is a
share of successes, on 1000 episodes; the others on 100).

    solved      the final policy, after all the preset's steps, reaches the threshold. Not the best
                policy of the run: that would choose among evaluations by their luck
    steps       to the first evaluation that reached the threshold: environment steps until then
    seconds     of training until then, without compiling and without these evaluations
    score       of the final policies: mean over seeds, and the lowest

A task is an environment with its own preset, or with a general one: some that have a preset of
their own are there a second time, to see what an environment gets for which nothing was tuned.

One process for each task, with one compiled program for all its seeds, one after another, on the
devices that ``auto`` chooses. Presets were tuned on seeds from 100 on; these are 0 to 9. Tasks of
Gymnasium are stepped outside of the compiled program and take minutes a seed: ``--host`` asks for
them.

Probes are processes with an empty compilation cache, timed from their start to the end of
``trimtab.train`` with the default settings for 100k steps. What they learnt is checked after that:
the greedy return against the optimum, and the critic against the values that can be written down.

    python bench/learning.py                          all but Gymnasium's
    python bench/learning.py --quick                  two seeds each
    python bench/learning.py --only Pendulum-v1       some environments
    python bench/learning.py --write                  also docs/learning.md, and the result lines in
                                                      the presets' files, as far as they were run
"""

import argparse
import dataclasses
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness
import sessions
from learning_pages import report, task_cells, write_page, write_results

VALUE_TOLERANCE = 0.1
PROBE_SECONDS = 5.0
PROBE_STEPS = 100_000


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment and what its runs are held to; shares are of the seeds."""

    env_id: str
    threshold: float | None = None  # none: no mark is agreed on
    share: float = 0.8
    median_steps: int | None = None
    episodes: int = 100
    algorithm: str = "ppo"
    general: str = ""  # a general preset, in place of the environment's own
    seeds: int = 10
    evaluations: int = 60  # in a run, about
    host: bool = False

    @property
    def preset(self) -> str:
        return self.general or self.env_id.lower()

    def solved(self, score: float) -> bool:
        return self.threshold is not None and score >= self.threshold


def _general(name: str, *tasks: Task) -> tuple[Task, ...]:
    return tuple(
        dataclasses.replace(task, general=name, seeds=min(task.seeds, 5), evaluations=20)
        for task in tasks
    )


OWN = (
    Task("CartPole-v1", 475.0, share=1.0, median_steps=45_000),
    Task("CartPole-v1", 475.0, algorithm="a2c"),
    Task("CartPole-v1", 475.0, algorithm="reinforce"),
    Task("Pendulum-v1", -200.0),
    Task("Acrobot-v1", -90.0),
    Task("MountainCarContinuous-v0", 90.0),
    Task("MountainCar-v0", -110.0),
    Task("FrozenLake-v1", 0.70, episodes=1000),
    Task("FrozenLake8x8-v1", 0.75, episodes=1000),
    Task("Catch-bsuite", 0.95),
    Task("Breakout-MinAtar", seeds=5, evaluations=5),
    Task("LunarLander-v3", 200.0, seeds=5, host=True),
)
GENERAL = (
    *_general(
        "discrete",
        Task("CartPole-v1", 475.0),
        Task("CartPole-v1", 475.0, algorithm="a2c"),
        Task("CartPole-v1", 475.0, algorithm="reinforce"),
        Task("Acrobot-v1", -100.0),
        Task("MountainCar-v0", -110.0),
        Task("FourRooms-misc", 0.95),
        Task("DiscountingChain-bsuite", 1.05),
    ),
    *_general(
        "continuous",
        Task("Pendulum-v1", -200.0),
        Task("Pendulum-v1", -200.0, algorithm="a2c"),
        Task("MountainCarContinuous-v0", 90.0),
        Task("MountainCarContinuous-v0", 90.0, algorithm="a2c"),
        Task("Reacher-misc"),
        Task("HalfCheetah-v5", host=True),
    ),
    *_general(
        "tabular",
        Task("FrozenLake8x8-v1", 0.75, episodes=1000),
        Task("Taxi-v4", 7.534),
        Task("CliffWalking-v1", -13.65),
    ),
    *_general(
        "image",
        Task("Asterix-MinAtar", seeds=5),
    ),
)
TASKS = OWN + GENERAL
PROBES = tuple(f"Probe{number}-v0" for number in range(1, 6))


# Workers: each of these runs in a process of its own.


def work_on_task(task: Task, seeds: int) -> None:
    """Train every seed, and answer with all evaluations."""
    configuration = sessions.configured(task.env_id, {}, task.algorithm, task.general)
    session = sessions.opened(configuration)

    import jax
    import numpy as np

    updates, batch = session.schedule.updates, session.schedule.batch
    every = max(2, math.ceil(updates / task.evaluations))
    step = sessions.compiled_step(session, every)
    evaluate = sessions.evaluator(session, task.episodes)
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
    answer_with(configuration, runs, compile_seconds)


def work_on_host_task(task: Task, seeds: int) -> None:
    """The same for an environment of Gymnasium, by the public function, which picks the preset.

    While training it is evaluated on 20 episodes at a time; of seconds only the run's are known,
    and they are shared out by steps.
    """
    import trimtab

    runs = []
    for seed in range(seeds):
        with harness.temporary_folder() as folder:
            env_id = f"gymnasium:{task.env_id}"
            run = trimtab.train(env_id, run_dir=folder / "run", seed=seed, eval_count=20)
            pace = run.timing["train"] / run.steps
            curve = [(row["steps"], row["steps"] * pace, row["mean"]) for row in run.evaluations]
            final = run.evaluate(task.episodes, seed=seed, checkpoint="latest")["mean"]
            runs.append({"seed": seed, "curve": [*curve[:-1], (*curve[-1][:2], final)]})
            configuration, compile_seconds = run.configuration, run.timing["compile"]
        print(f"{task.env_id}, seed {seed}: {final:.1f}", file=sys.stderr, flush=True)
    answer_with(configuration, runs, compile_seconds)


def answer_with(configuration: Any, runs: list[dict[str, Any]], compile_seconds: float) -> None:
    settings = configuration.training
    harness.answer(
        runs=runs,
        shape=f"{settings.num_envs}×{settings.num_steps}",
        compile_seconds=compile_seconds,
        total_steps=runs[0]["curve"][-1][0],
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
    command = [sys.executable, __file__, "--work", str(TASKS.index(task)), str(seeds)]
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
        **dataclasses.asdict(task),
        "environment": task.env_id,
        "preset": task.preset,
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
        "seconds_at_most": PROBE_SECONDS,
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


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        task = TASKS[int(sys.argv[2])]
        (work_on_host_task if task.host else work_on_task)(task, int(sys.argv[3]))
        return
    if sys.argv[1:2] == ["--probe"]:
        work_on_probe(sys.argv[2])
        return
    parser = harness.arguments(__doc__)
    names = [*dict.fromkeys(task.env_id for task in TASKS), "probes"]
    parser.add_argument("--seeds", type=int, metavar="S", help="seeds of each at most (quick: 2)")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="ENV")
    parser.add_argument("--presets", choices=["own", "general"], help="only these presets")
    parser.add_argument("--algo", choices=["ppo", "a2c", "reinforce"], help="only this algorithm")
    parser.add_argument("--host", action="store_true", help="Gymnasium's own too: minutes a seed")
    parser.add_argument("--write", action="store_true", help="write pages and presets' results")
    parser.add_argument(
        "--read", nargs="+", type=Path, metavar="FILE", help="figures that --json kept; run nothing"
    )
    options = parser.parse_args()
    if options.read:
        known = [json.loads(file.read_text(encoding="utf-8")) for file in options.read]
        tasks = [figures for one in known for figures in one["tasks"]]
        conclude(options, tasks, [figures for one in known for figures in one["probes"]])
        return
    most = options.seeds or (2 if options.quick else 10)
    print(f"Learning, at most {most} seeds. {harness.machine_words()}")
    tasks, probes = [], []
    for task in {"own": OWN, "general": GENERAL, None: TASKS}[options.presets]:
        if options.algo not in (None, task.algorithm):
            continue
        if task.env_id in options.only and (options.host or not task.host):
            tasks.append(measure(task, min(task.seeds, most)))
            print("  " + " · ".join(task_cells(tasks[-1])), file=sys.stderr, flush=True)
    if "probes" in options.only and options.presets is None and options.algo is None:
        probes = [measure_probe(env_id) for env_id in PROBES]
    conclude(options, tasks, probes)
    harness.write_figures(options.json, json.loads(json.dumps({"tasks": tasks, "probes": probes})))


def conclude(options: argparse.Namespace, tasks: list, probes: list) -> None:
    """Print the tables, and write what is to be written."""
    print(f"\n{report(tasks, probes)}")
    if options.write:
        write_page(tasks, probes)
        write_results(tasks)


if __name__ == "__main__":
    main()
