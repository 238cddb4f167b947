"""The tables that ``trimtab lab`` prints: one for each checkpoint and head."""

import math
from collections.abc import Mapping
from typing import Any

from trimtab.cli.tables import print_table

Record = Mapping[str, Any]


def print_head(content: Record, moment: Record, head: str) -> None:
    """One row for each split and λ."""
    rows = []
    cells = [cell for cell in content["cells"] if cell["checkpoint"] == moment["name"]]
    measured = [cell for cell in cells if head in cell["heads"]]
    if not measured:
        return
    steps = f", {moment['steps']:,} steps" if moment["steps"] else ""
    known = moment.get("expected_return")
    value = "" if known is None else f", expected return {known:.3g}"
    print(f"{head} of {moment['name']}: update {moment['update']:,}{steps}{value}")
    for cell in measured:
        record = cell["heads"][head]
        name = f"{cell['lanes']}×{cell['steps']}"
        trace = "own" if cell["trace"] is None else f"{cell['trace']:g}"
        if record["zero"]:
            rows.append((name, trace, "no gradient: it is exactly zero", *[""] * 6))
            continue
        rows.append((name, trace, *_figures(record), _milliseconds(cell)))
    print_table(
        (
            ">N×T",
            ">λ",
            ">effective samples",
            ">covariance share",
            ">noise scale",
            ">signal/noise",
            ">cos truth",
            ">bias/gradient",
            ">ms/update",
        ),
        rows,
    )
    error = max((cell["heads"][head].get("sketch_error", 0.0) for cell in measured), default=0.0)
    if error:
        print(f"gradients were sketched: inner products are within about {100 * error:.0f}%")


def print_within_an_update(moment: Record) -> None:
    """|bias| / |gradient| by source, where an update takes more than one gradient step."""
    if "surrogate" not in moment:
        return
    parts = []
    for name, squares in moment["surrogate"].items():
        lengths = [math.sqrt(max(x, 0.0)) if not math.isnan(x) else x for x in squares]
        parts.append(f"{name} {interval(lengths)}")
    print(f"bias/gradient of the actor at the end of an update: {', '.join(parts)}")


def _figures(record: Record) -> tuple[str, ...]:
    figures = record["figures"]
    variance = figures["variance"][0]
    share = (
        [value / variance for value in figures["covariance"]] if variance > 0 else [math.nan] * 3
    )
    bias = record.get("bias")
    cosine = interval(bias["cosine"]) if bias else "–"
    relative = "–"
    if bias and "sources" in bias:
        relative = figure(bias["sources"]["total"])
    elif bias and bias["squared_truth"] > 0:
        parts = [math.sqrt(max(x, 0) / bias["squared_truth"]) for x in bias["squared_bias"]]
        relative = interval(parts)
    return (
        interval(figures["effective_samples"]),
        interval(share),
        interval(figures["noise_scale"]),
        interval(figures["signal_to_noise"]),
        cosine,
        relative,
    )


def _milliseconds(cell: Record) -> str:
    seconds = cell.get("update_seconds")
    return "–" if seconds is None else figure(1000 * seconds)


def interval(estimate: Any) -> str:
    """12.3 (9.8–15.1)"""
    value, low, high = estimate
    return f"{figure(value)} ({figure(low)}–{figure(high)})"


def figure(value: float) -> str:
    """Three digits: 0.0123, 45.6, 12,300, ∞."""
    if math.isnan(value):
        return "?"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"
