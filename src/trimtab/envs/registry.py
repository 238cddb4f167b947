"""The environments that trimtab knows by name: a plain table, read without JAX or a simulator.

So `trimtab envs`, and the "did you mean" after a misspelt id, answer at once.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class EnvEntry:
    """One line of the table."""

    id: str
    backend: str
    action: str
    observation: str
    summary: str
    solved_at: float | None = None


_ENTRIES = (
    EnvEntry("CartPole-v1", "gymnax", "Discrete(2)", "Box(4)", "balance a pole on a cart", 475.0),
    EnvEntry("Pendulum-v1", "gymnax", "Box(1)", "Box(3)", "swing up and hold", -200.0),
    EnvEntry("Acrobot-v1", "gymnax", "Discrete(3)", "Box(6)", "swing up two links", -100.0),
    EnvEntry("MountainCar-v0", "gymnax", "Discrete(3)", "Box(2)", "rock a car uphill", -110.0),
    EnvEntry("MountainCarContinuous-v0", "gymnax", "Box(1)", "Box(2)", "rock a car uphill", 90.0),
)


def list_environments() -> list[EnvEntry]:
    """Every environment that ``make`` knows by name, by backend and then by id."""
    return list(_ENTRIES)
