"""What ``halfcheetah.py`` and ``atari.py`` share: a short run, and its curve as a table."""

import time
from typing import Any

import harness

ROWS = 10


def report(env_id: str, steps: int, folder: Any, **settings: Any) -> dict[str, Any]:
    """Train, and tell how the return of training episodes rose."""
    import trimtab

    begun = time.perf_counter()
    run = trimtab.train(env_id, run_dir=folder / "run", total_steps=steps, **settings)
    whole = time.perf_counter() - begun
    rows = run.metrics
    part = max(1, len(rows) // ROWS)
    curve = []
    for first in range(0, len(rows), part):
        some = [row for row in rows[first : first + part] if row["rollout/episodes"]]
        episodes = sum(row["rollout/episodes"] for row in some)
        total = sum(row["rollout/return_mean"] * row["rollout/episodes"] for row in some)
        mean = total / episodes if episodes else None
        last = rows[min(first + part, len(rows)) - 1]
        curve.append({"steps": last["steps"], "episodes": episodes, "return": mean})
    cells = [
        [f"{one['steps']:,}", f"{one['episodes']:.0f}", _words(one["return"])] for one in curve
    ]
    print(harness.table(["steps", "episodes since", "their mean return"], cells))
    trained = run.timing["train"]
    final = run.final_evaluation
    print(f"{run.steps / trained:,.0f} steps/s with evaluations; {whole:.0f} s from start to end.")
    if final is not None:
        print(f"The best policy, on {final['episodes']} episodes: {final['mean']:.1f}")
    return {"curve": curve, "seconds": whole, "steps_per_second": run.steps / trained}


def _words(mean: float | None) -> str:
    return "none ended" if mean is None else f"{mean:,.1f}"
