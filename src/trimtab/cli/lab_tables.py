"""The tables that ``trimtab lab`` prints: one for each checkpoint and head."""

import math
from collections.abc import Mapping
from typing import Any

from trimtab.cli.tables import print_table

Record = Mapping[str, Any]


def print_head(content: Record, moment: Record, head: str) -> None:
    """A table for each λ, with one column for each split."""
    cells = [cell for cell in content["cells"] if cell["checkpoint"] == moment["name"]]
    measured = [cell for cell in cells if head in cell["heads"]]
    steps = f", {moment['steps']:,} steps" if moment["steps"] else ""
    known = moment.get("expected_return")
    value = "" if known is None else f", expected return {known:.3g}"
    for trace in dict.fromkeys(cell["trace"] for cell in measured):
        alike = [cell for cell in measured if cell["trace"] == trace]
        of = "" if trace is None else f", λ = {trace:g}"
        print(f"{head} of {moment['name']}: update {moment['update']:,}{steps}{value}{of}")
        columns = [_column(cell, head) for cell in alike]
        names = list(dict.fromkeys(name for column in columns for name in column))
        splits = (f">{cell['lanes']}×{cell['steps']}" for cell in alike)
        rows = ([name, *(column.get(name, "–") for column in columns)] for name in names)
        print_table(("lanes × steps", *splits), rows)
    error = max((cell["heads"][head].get("sketch_error", 0.0) for cell in measured), default=0.0)
    if error:
        print(f"gradients were sketched: inner products are within about {100 * error:.0f}%")


def print_within_an_update(moment: Record) -> None:
    """|bias| / |gradient| by source, where an update takes more than one gradient step."""
    if "surrogate" not in moment:
        return
    print("bias/gradient of the actor at the end of an update: ", end="")
    if all(math.isnan(squares[0]) for squares in moment["surrogate"].values()):
        print("not known, since the measured updates do not tell its gradient from nothing")
        return
    parts = (f"{name} {_length(squares)}" for name, squares in moment["surrogate"].items())
    print(", ".join(parts))


def _column(cell: Record, head: str) -> dict[str, str]:
    """What is printed of one split, by the name of its row."""
    record, seconds = cell["heads"][head], cell.get("update_seconds")
    time = {} if seconds is None else {"ms/update": figure(1000 * seconds)}
    if record["zero"]:
        return {"gradient": "exactly zero", **time}
    figures = record["figures"]
    variance = figures["variance"][0]
    column = {
        "effective samples": interval(figures["effective_samples"]),
        "variance": interval(figures["variance"]),
        "… from single batches": interval(figures["cluster_variance"]),
    }
    if variance > 0:
        share = [value / variance for value in figures["covariance"]]
        column["covariance share"] = interval(share)
    column |= {
        "noise scale": interval(figures["noise_scale"]),
        "signal/noise": interval(figures["signal_to_noise"]),
    }
    if "bias" in record:
        column |= _bias(record["bias"], variance)
    return {**column, **time}


def _bias(bias: Record, variance: float) -> dict[str, str]:
    """Relative to the true gradient; where that is not known, to the variance."""
    if not bias["known"]:
        share = [value / variance for value in bias["squared_bias"]] if variance > 0 else None
        unknown = {"true gradient": "too small to know"}
        return unknown if share is None else {**unknown, "bias²/variance": interval(share)}
    known = (
        figure(bias["sources"]["total"]) if "sources" in bias else _length(bias["relative_bias"])
    )
    return {"cosine with the true gradient": interval(bias["cosine"]), "bias/gradient": known}


def _length(squares: Any) -> str:
    """Of estimated squares, which may be negative where the length is about 0."""
    value, low, high = (math.sqrt(max(x, 0.0)) if not math.isnan(x) else x for x in squares)
    return interval((value, low, high if squares[2] >= 0 else math.nan))


def interval(estimate: Any) -> str:
    """12.3 (9.8–15.1), or a dash for what cannot be known."""
    value, low, high = estimate
    if math.isnan(value):
        return "–"
    return f"{figure(value)} ({figure(low)}–{figure(high)})"


def figure(value: float) -> str:
    """Three digits, or two and a power: 1.2e-4, 0.0123, 45.6, 12,300, ∞."""
    if math.isnan(value):
        return "?"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    if 0 < abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.3g}"
