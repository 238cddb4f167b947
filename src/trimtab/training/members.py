"""Which runs a group has: its seeds, and the values that are swept. No JAX here.

The runs of a group are one compiled program, so they may differ only in what a program takes as
data: the seed, and the algorithm's floats.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trimtab.errors import SettingError, did_you_mean
from trimtab.settings import field_types, from_text, replaced, setting_names
from trimtab.training.config import TrainSettings

Sweep = Mapping[str, Sequence[float]]
MOST_RUNS = 10_000


@dataclasses.dataclass(frozen=True)
class Member:
    """One run of a group: what is its own."""

    seed: int
    values: Mapping[str, float]

    @property
    def name(self) -> str:
        """The name of its folder: learning_rate=0.001-seed-3."""
        swept = [f"{name}={value!r}" for name, value in self.values.items()]
        return "-".join([*swept, f"seed-{self.seed}"])


def members_of(algorithm: Any, seeds: Iterable[int], sweep: Sweep) -> list[Member]:
    """Every combination of the swept values, with every seed; refused if one of them is invalid."""
    chosen = _checked_seeds(seeds)
    columns = {name: _checked_values(algorithm, name, values) for name, values in sweep.items()}
    combinations = [
        dict(zip(columns, row, strict=True)) for row in itertools.product(*columns.values())
    ]
    if len(combinations) * len(chosen) > MOST_RUNS:
        raise SettingError(
            f"{len(combinations):,} combinations of swept values with {len(chosen):,} seeds are "
            f"{len(combinations) * len(chosen):,} runs; a group has at most {MOST_RUNS:,}."
        )
    return [Member(seed, values) for values in combinations for seed in chosen]


def read_seeds(text: str) -> list[int]:
    """``0:8`` is 0 to 7; ``0,3,5`` is those; both may be mixed."""
    seeds: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        try:
            if not colon:
                seeds.append(int(first))
                continue
            low, high = int(first or 0), int(last)
        except ValueError:
            raise SettingError(
                f"--seeds {text} is not valid: expected a range such as 0:8, which is 0 to 7, or "
                f"numbers such as 0,3,5."
            ) from None
        if low >= high:
            raise SettingError(
                f"--seeds {text} is empty: in FIRST:END the end is not included, and must be larger"
                f". For the seeds {low} to {low + 7}, give {low}:{low + 8}."
            )
        if high - low > MOST_RUNS:
            raise SettingError(
                f"--seeds {text} are {high - low:,} runs; a group has at most {MOST_RUNS:,}."
            )
        seeds += range(low, high)
    return seeds


def read_sweep(text: str) -> tuple[str, list[float]]:
    """``learning-rate=1e-4,3e-4`` as a setting's name and its values."""
    name, equals, values = text.partition("=")
    try:
        if not equals or not name.strip():
            raise ValueError
        numbers = [from_text(value.strip(), float) for value in values.split(",")]
    except ValueError:
        raise SettingError(
            f"--sweep {text} is not valid: expected NAME=VALUE,VALUE, such as "
            f"learning-rate=1e-4,3e-4,1e-3."
        ) from None
    return name.strip().removeprefix("--").replace("-", "_"), numbers


def joined_sweep(parts: Iterable[tuple[str, list[float]]]) -> dict[str, list[float]]:
    """Several ``--sweep`` as one; each names another setting."""
    sweep: dict[str, list[float]] = {}
    for name, values in parts:
        if name in sweep:
            raise SettingError(
                f"--sweep names {name} twice: give all its values together, as in "
                f"{name.replace('_', '-')}={','.join(f'{v:g}' for v in [*sweep[name], *values])}."
            )
        sweep[name] = values
    return sweep


def sweepable(algorithm: Any) -> list[str]:
    """The settings that one compiled program can vary: the algorithm's floats."""
    kinds = field_types(type(algorithm))
    return [name for name in setting_names(algorithm) if kinds[name] is float]


def _checked_seeds(seeds: Iterable[int]) -> list[int]:
    chosen = [replaced(TrainSettings(), {"seed": seed}, "seeds").seed for seed in seeds]
    if not chosen:
        raise SettingError("seeds are empty: give at least one, such as range(8).")
    _refuse_twice("seeds", chosen)
    return chosen


def _checked_values(algorithm: Any, name: str, values: Sequence[float]) -> list[float]:
    known = sweepable(algorithm)
    if name not in known:
        others = [*setting_names(algorithm), *setting_names(TrainSettings())]
        kind = "is not a float of the algorithm" if name in others else "is not known"
        near = "" if name in others else did_you_mean(name, known)
        raise SettingError(
            f"sweep: {name!r} {kind}, and so cannot vary within one compiled program.{near} "
            f"Those that can: {', '.join(known)}."
        )
    if not values:
        raise SettingError(f"sweep: {name} has no values: give at least one.")
    checked = [getattr(replaced(algorithm, {name: value}, "sweep"), name) for value in values]
    _refuse_twice(f"sweep: the values of {name}", checked)
    return checked


def _refuse_twice(what: str, values: Sequence[float]) -> None:
    twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
    if twice is not None:
        raise SettingError(f"{what} hold {twice:g} twice: each makes one run.")
