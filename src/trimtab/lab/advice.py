"""One sentence of advice, and what it rests on.

Splits are compared by the mean squared error of the actor's gradient, bias² + variance, where a
true gradient is known, and else by variance alone. Two splits differ if the interval of the ratio
of their errors leaves out 1; the interval is widened for the number of comparisons.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from trimtab.lab.intervals import Estimate, student_quantile
from trimtab.lab.results import estimate

# Of a normal variable, two-sided, by the number of comparisons (Bonferroni at 5%).
_QUANTILES = (1.960, 2.241, 2.394, 2.498, 2.576, 2.638, 2.690, 2.734)

# Times of updates that differ by less are not worth a word, and may be chance.
_SLOWER = 1.15


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A split, and how wrong its gradient is."""

    name: str
    error: Estimate
    bias_share: float | None  # of the error; None where no true gradient is known
    seconds: float | None  # of an update


@dataclasses.dataclass(frozen=True)
class Advice:
    """A sentence, and the split that it recommends, if the data support one."""

    sentence: str
    split: str | None


def candidate(cell: dict[str, Any], head: str = "actor") -> Candidate | None:
    """What a cell says of its split; None where there is nothing to compare."""
    record = cell.get("heads", {}).get(head)
    if record is None or record["zero"]:
        return None
    name = f"{cell['lanes']}×{cell['steps']}"
    seconds = cell.get("update_seconds")
    if "bias" not in record:
        return Candidate(name, estimate(record, "figures", "variance"), None, seconds)
    error = estimate(record, "bias", "squared_error")
    variance = record["figures"]["variance"][0]
    return Candidate(name, error, 1 - variance / error.value, seconds)


def advise(cells: Sequence[dict[str, Any]], batches: int) -> Advice:
    """What the cells of one checkpoint, all of one budget and one λ, support."""
    found = [one for one in map(candidate, cells) if one is not None]
    if not found:
        return Advice("There is no gradient here to compare.", None)
    if len(found) == 1:
        return Advice(_alone(found[0]), None)
    ranked = sorted(found, key=lambda one: one.error.value)
    best, others = ranked[0], ranked[1:]
    quantile = _QUANTILES[min(len(others), len(_QUANTILES)) - 1]
    ratios = [ratio(other.error, best.error, quantile) for other in others]
    worse = [other for other, one in zip(others, ratios, strict=True) if one.low > 1]
    measure = "variance" if best.bias_share is None else "squared error"
    if not worse:
        times = [one.seconds for one in found if one.seconds]
        fast = ""
        if len(times) == len(found) and max(times) > _SLOWER * min(times):
            cheapest = min(found, key=lambda one: one.seconds or math.inf)
            fast = f" An update is fastest with {cheapest.name}."
        return Advice(
            f"Between {_listed([one.name for one in found])} there is no difference in the "
            f"{measure} of the actor's gradient that {batches} batches can show.{fast}",
            None,
        )
    last = others[-1]
    furthest = ratio(last.error, best.error, quantile)
    ties = [one.name for one in others if one not in worse]
    tied = f" {_listed(ties)} cannot be told from it." if ties else ""
    return Advice(
        f"{best.name}: the {measure} of the actor's gradient is {_times(furthest)} smaller than "
        f"with {last.name}{_reason(best, last)}.{tied}{_cost(best, last)}",
        best.name,
    )


def ratio(above: Estimate, below: Estimate, quantile: float) -> Estimate:
    """a/b of two independent positive estimates, with an interval on the logarithm."""
    if min(above.low, below.low, above.value, below.value) <= 0:
        return Estimate(above.value / below.value, 0.0, math.inf)
    reach = quantile * math.hypot(_log_error(above), _log_error(below))
    centre = math.log(above.value / below.value)
    return Estimate(math.exp(centre), math.exp(centre - reach), math.exp(centre + reach))


def _log_error(one: Estimate) -> float:
    """The standard error of the logarithm, from a 95% interval of twenty groups."""
    return math.log(one.high / one.low) / (2 * student_quantile(19))


def _alone(one: Candidate) -> str:
    share = "" if one.bias_share is None else f" {_percent(one.bias_share)} of it is bias."
    return f"Only {one.name} was measured; --splits compares others.{share}"


def _reason(best: Candidate, last: Candidate) -> str:
    if best.bias_share is None or last.bias_share is None:
        return ""
    bias = last.error.value * last.bias_share - best.error.value * best.bias_share
    gain = last.error.value - best.error.value
    part = bias / gain if gain > 0 else 0.0
    if part > 2 / 3:
        return ", because it is less biased"
    if part < 1 / 3:
        return ", because it varies less"
    return ", because it is less biased and varies less"


def _cost(best: Candidate, last: Candidate) -> str:
    if not best.seconds or not last.seconds:
        return ""
    slower = best.seconds / last.seconds
    if slower > _SLOWER:
        return f" Its updates take {slower:.1f} times as long."
    if slower < 1 / _SLOWER:
        return f" Its updates are {1 / slower:.1f} times as fast."
    return ""


def _times(one: Estimate) -> str:
    return f"{one.value:.2g} times ({one.low:.2g}–{one.high:.2g})"


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.0f}%"


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
