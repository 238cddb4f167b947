"""What is to be measured: splits of a budget into lanes and steps, and what memory allows.

Nothing here imports JAX: bad input is answered before it loads.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Literal

from trimtab.errors import SettingError

Start = Literal["stationary", "carried", "fresh"]
FEWEST_BATCHES = 20
# Steps to carry lanes on where episodes have no limit of their own.
WARM_UP = 200
# A group of batches is computed at once, and intervals come from leaving out one group.
MOST_GROUPS = 20
_FLOAT = 4
# Copies of a batch's gradients that exist at once: as computed, as one array, and in products.
_COPIES = 5
_SIZES = (4093, 2039, 1021, 509, 251)  # of sketches: primes, so that no layer's width divides them


@dataclasses.dataclass(frozen=True, order=True)
class Split:
    """N lanes of T steps each."""

    lanes: int
    steps: int

    @property
    def samples(self) -> int:
        return self.lanes * self.steps

    def __str__(self) -> str:
        return f"{self.lanes}×{self.steps}"


def warm_up(limit: int | None, compiled: bool) -> int:
    """Steps that lanes are carried on before a batch, where nobody says.

    To the episodes' limit; where environments are stepped one by one, not further than most need.
    """
    steps = limit or WARM_UP
    return steps if compiled else min(steps, WARM_UP)


def parse_splits(text: str) -> tuple[Split, ...]:
    """``4x32,32x4`` as splits, N first."""
    parts = (part.strip() for part in text.split(","))
    return tuple(dict.fromkeys(_parse_split(part) for part in parts if part))


def _parse_split(text: str) -> Split:
    match = re.fullmatch(r"(\d+)\s*[x×*]\s*(\d+)", text)
    if match is None or not all(int(number) for number in match.groups()):
        raise SettingError(
            f"--splits {text} is not valid: expected lanes × steps, such as 4x32,32x4."
        )
    return Split(*(int(number) for number in match.groups()))


def default_splits(samples: int, own: Split) -> tuple[Split, ...]:
    """The run's own split, and four ways from long rollouts to many lanes of the same budget."""
    powers = [2**k for k in range(1, 20) if samples % 2**k == 0 and samples // 2**k >= 2]
    chosen = powers[1:-1] or powers
    step = max(1, len(chosen) // 4)
    splits = {Split(lanes, samples // lanes) for lanes in chosen[::step][:4]}
    return tuple(sorted({own, *splits}))


def check_splits(splits: Sequence[Split], minibatches: int) -> None:
    """Refuse splits of which the algorithm could not make its minibatches."""
    for split in splits:
        if split.samples % minibatches:
            raise SettingError(
                f"--splits {split}: {split.samples} transitions cannot be divided into "
                f"minibatches = {minibatches} equal parts. Choose N×T that {minibatches} divides."
            )
        if split.samples < 2:
            raise SettingError(f"--splits {split}: one transition has no variance to measure.")


def check_batches(batches: int) -> None:
    if batches < FEWEST_BATCHES:
        raise SettingError(
            f"--batches {batches} is too few for an interval that means anything: expected "
            f"{FEWEST_BATCHES} or more; 200 is the default."
        )


def grouping(batches: int) -> tuple[int, int]:
    """The number of groups J and the batches in each, J × size ≥ batches."""
    for groups in range(MOST_GROUPS, 9, -1):
        if batches % groups == 0:
            return groups, batches // groups
    size = -(-batches // MOST_GROUPS)
    return -(-batches // size), size


def parse_traces(text: str) -> tuple[float, ...]:
    """``0,0.5,1`` as values of λ."""
    traces = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            value = float(part)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1:
            raise SettingError(
                f"--lambdas {part} is not valid: expected numbers from 0 to 1, separated by commas."
            )
        traces.append(value)
    return tuple(dict.fromkeys(traces))


@dataclasses.dataclass(frozen=True)
class Storage:
    """How a batch's gradients per sample are held: whole, or sketched a chunk at a time."""

    chunk: int  # samples whose gradients are computed at once; 0: all of the batch
    sketch: int  # numbers that a sketched gradient has; 0: none is sketched

    @property
    def error(self) -> float:
        """What sketching adds to the relative error of an inner product."""
        return (2 / self.sketch) ** 0.5 if self.sketch else 0.0


def storage_for(split: Split, parameters: int, groups: int, memory: float) -> Storage:
    """The storage that keeps one head's gradients within ``memory`` bytes."""
    whole = _COPIES * split.samples * parameters * _FLOAT
    kept = 3 * groups * split.steps * parameters * _FLOAT  # step means of each group, in float64
    if whole + kept <= memory:
        return Storage(0, 0)
    per_number = _COPIES * split.samples * _FLOAT + 3 * groups * split.steps * _FLOAT
    for size in _SIZES:
        if size * per_number <= memory / 2:
            chunk = int(memory / 2 / (_COPIES * parameters * _FLOAT))
            divisors = [d for d in range(1, split.samples + 1) if split.samples % d == 0]
            fitting = [divisor for divisor in divisors if divisor <= chunk]
            if fitting:
                return Storage(fitting[-1], size)
    needed = 2 * _SIZES[-1] * per_number + 4 * _COPIES * parameters * _FLOAT
    raise SettingError(
        f"--memory is too little: each head has {memory / 1e9:.2g} GB of it, and {split} with "
        f"{parameters:,} parameters needs {needed / 1e9:.2g} GB or more."
    )
