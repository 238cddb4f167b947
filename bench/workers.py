"""The worker pool beside Gymnasium's AsyncVectorEnv: 8 lanes, stepped with random actions.

Three environments: one that does next to nothing, so that what is measured is the pool; and two
that take 5 ms for a step, one of them computing, the other waiting for something outside. The pool
has as many workers as there are cores for the first two, and one for each lane for the last (cores
do not matter to what waits); AsyncVectorEnv always has one process for each lane. Both keep
observations in shared memory. A round steps each for as long, one after the other; a round gives a
ratio; reported is the median over rounds, with the range.

``--profile`` says where the time of a step goes, in the trainer and in a worker.

    python bench/workers.py
"""

import cProfile
import io
import pstats
import statistics
import time
from typing import Any

import gymnasium
import harness
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv

LANES = 8
COSTS = {"next to nothing": "nothing", "5 ms of computing": "compute", "5 ms of waiting": "wait"}
TARGETS = {"nothing": 4.0, "compute": 1.0, "wait": 1.0}
STEP_SECONDS = 0.005


class Cheap(gymnasium.Env):
    """Four numbers, two actions, episodes of 200 steps, and what a step costs."""

    def __init__(self, cost: str):
        self.observation_space = spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.cost, self.time = cost, 0
        self.seen = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.seen, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        if self.cost == "wait":
            time.sleep(STEP_SECONDS)
        elif self.cost == "compute":
            ended = time.thread_time() + STEP_SECONDS
            while time.thread_time() < ended:
                pass
        return self.seen, 1.0, False, self.time == 200, {}


class Maker:
    """Makes the environment of one cost."""

    def __init__(self, cost: str):
        self.cost = cost

    def __call__(self) -> gymnasium.Env:
        return Cheap(self.cost)


def rate(step: Any, seconds: float) -> float:
    """Environment steps per second."""
    actions = np.ones(LANES, np.int64)
    rounds, begun = 0, time.perf_counter()
    while True:
        for _ in range(10):
            step(actions)
        rounds += 10
        elapsed = time.perf_counter() - begun
        if elapsed >= seconds:
            return rounds * LANES / elapsed


def measure(cost: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Rates of both in interleaved rounds."""
    from trimtab.collect.workers import WorkerPool

    workers = LANES if cost == "wait" else min(LANES, harness.available_cores())
    pool = WorkerPool(Maker(cost), LANES, workers)
    peer = AsyncVectorEnv([Maker(cost)] * LANES, shared_memory=True, copy=False, context="spawn")
    try:
        pool.reset(range(LANES))
        peer.reset(seed=0)
        rate(pool.step, seconds / 4)
        rate(peer.step, seconds / 4)
        both = [(rate(pool.step, seconds), rate(peer.step, seconds)) for _ in range(rounds)]
    finally:
        pool.close()
        peer.close()
    ours, theirs = zip(*both, strict=True)
    ratios = [mine / other for mine, other in both]
    return {"workers": workers, "ours": ours, "theirs": theirs, "ratios": ratios}


def profiles() -> str:
    """Where a step's time goes: in the trainer, and in one process with all lanes."""
    from trimtab.collect.workers import WorkerPool
    from trimtab.envs.in_process import InProcessEnv
    from trimtab.faults import FaultPolicy

    pool = WorkerPool(Maker("nothing"), LANES, min(LANES, harness.available_cores()))
    alone = InProcessEnv(Maker("nothing"), LANES, FaultPolicy())
    told = []
    for name, env in (("the trainer's side", pool), ("the lanes themselves", alone)):
        env.reset(range(LANES))
        profile = cProfile.Profile()
        profile.runcall(rate, env.step, 1.0)
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(12)
        told.append(f"{name}\n{text.getvalue()}")
        env.close()
    return "\n".join(told)


def main() -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--profile", action="store_true", help="where a step's time goes")
    options = parser.parse_args()
    if options.profile:
        print(profiles())
        return
    print(harness.machine_words())
    rounds, seconds = (2, 0.3) if options.quick else (7, 1.5)
    rows, figures = [], {}
    for name, cost in COSTS.items():
        found = figures[cost] = measure(cost, rounds, seconds)
        middle = statistics.median(found["ratios"])
        rows.append(
            [
                name,
                found["workers"],
                f"{statistics.median(found['ours']):,.0f}",
                f"{statistics.median(found['theirs']):,.0f}",
                harness.ratio_words(found["ratios"]),
                f"≥ {TARGETS[cost]:g}: {harness.verdict(middle >= TARGETS[cost])}",
            ]
        )
    heads = ["a step costs", "workers", "pool, steps/s", "AsyncVectorEnv", "ratio", "target"]
    print(harness.table(heads, rows))
    harness.write_figures(options.json, figures)


if __name__ == "__main__":
    main()
