"""What a check of an environment found. No JAX here."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal, final

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")

# Each look that is taken at an environment, in the order of a report.
CHECKS = {
    "construction": "it can be made",
    "spaces": "its spaces can be learned in",
    "reset": "reset() takes a seed and answers as it should",
    "step": "step() answers as it should, and raises nothing",
    "values": "observations are finite and in their space, rewards finite numbers",
    "determinism": "the same seed and actions give the same steps",
    "seeds": "other seeds give other episodes",
    "buffers": "what was returned is not changed afterwards",
    "episodes": "episodes end, and by the right flag",
    "observation scale": "observations are of a size that networks learn from",
    "reward scale": "rewards are of a size that critics learn from",
    "speed": "steps take about the same time each",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing: what, where, and what to do about it."""

    level: Level  # an error ends or spoils training; a warning may; a note does not
    check: str  # a key of CHECKS
    what: str
    where: str = ""
    advice: str = ""
    traceback: str = ""


@final
class Findings:
    """Collects findings; the same one again is counted and not repeated."""

    def __init__(self) -> None:
        self._counted: dict[Any, tuple[Finding, int]] = {}

    def add(self, finding: Finding, same_as: Any = None) -> None:
        """``same_as`` names what makes two findings the same; by default their words."""
        key = (finding.check, finding.what if same_as is None else same_as)
        first, count = self._counted.get(key, (finding, 0))
        self._counted[key] = first, count + 1

    def extend(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.add(finding)

    def has_errors(self) -> bool:
        return any(finding.level == "error" for finding, _ in self._counted.values())

    def listed(self) -> list[Finding]:
        """The worst first, each with how often it was met."""
        found = [
            dataclasses.replace(one, where=f"{one.where}, and {count - 1:,} times more")
            if count > 1 and one.where
            else one
            for one, count in self._counted.values()
        ]
        return sorted(found, key=lambda one: (LEVELS.index(one.level), [*CHECKS].index(one.check)))


@dataclasses.dataclass(frozen=True)
class EnvReport:
    """What ``check_env`` found of an environment, and what it measured."""

    env_id: str
    findings: list[Finding]
    looked_at: list[str]  # the checks that could be made, keys of CHECKS
    figures: dict[str, Any]

    @property
    def ok(self) -> bool:
        """Whether there was no error."""
        return not self.errors

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "error"]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "warning"]

    @property
    def passed(self) -> list[str]:
        """The checks that found nothing."""
        found = {finding.check for finding in self.findings}
        return [check for check in self.looked_at if check not in found]

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "environment": self.env_id,
            "ok": self.ok,
            "errors": len(self.errors),
            "warnings": len(self.warnings),
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "passed": self.passed,
            "figures": self.figures,
        }
