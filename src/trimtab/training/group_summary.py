"""How a group did: for each combination of swept values, what its seeds came to. No JAX here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.log.writer import read_jsonl
from trimtab.training.evaluations import while_training
from trimtab.training.rundir import RunFolder
from trimtab.training.statistics import bootstrap_interval, interquartile_mean


def summary_of(folder: Path, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each combination of swept values: how the final policies of its seeds do.

    A score is the mean return of the run's last evaluation, that of its final policy: to choose
    each run's best evaluation would flatter it.
    """
    mark = document["solved_at"]
    by_values: dict[tuple, list[Mapping[str, Any]]] = {}
    for row in document["runs"]:
        by_values.setdefault(tuple(row["values"].items()), []).append(row)
    return [_summary_row(dict(values), rows, folder, mark) for values, rows in by_values.items()]


def _summary_row(
    values: Mapping[str, float],
    rows: Sequence[Mapping[str, Any]],
    folder: Path,
    mark: float | None,
) -> dict[str, Any]:
    whole = [row for row in rows if row["error"] is None]
    paths = [RunFolder(folder / row["folder"]).evaluations_path for row in whole]
    curves = [while_training(read_jsonl(path)) for path in paths]
    scores = np.asarray([curve[-1]["mean"] for curve in curves])
    firsts = [
        next(
            (point["steps"] for point in curve if mark is not None and point["mean"] >= mark), None
        )
        for curve in curves
    ]
    solved = [first for first in firsts if first is not None]
    some = len(scores) > 0
    # The median over all seeds; where half of them never got there, there is none.
    median = np.median([np.inf if first is None else first for first in firsts]) if some else np.inf
    return {
        "values": dict(values),
        "seeds": len(rows),
        "failed": len(rows) - len(whole),
        "iqm": interquartile_mean(scores) if some else None,
        "interval": bootstrap_interval(scores),
        "mean": float(scores.mean()) if some else None,
        "min": float(scores.min()) if some else None,
        "max": float(scores.max()) if some else None,
        "solved": None if mark is None else int((scores >= mark).sum()),
        "reached": None if mark is None else len(solved),
        "median_steps_to_solve": float(median) if np.isfinite(median) else None,
    }
