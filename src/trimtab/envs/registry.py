"""The environments that trimtab knows by name: a plain table, read without JAX or a simulator.

So ``trimtab envs``, and the "did you mean" after a misspelt id, answer at once. Tests compare the
table with the environments themselves, and its thresholds with Gymnasium's.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class EnvEntry:
    """One line of the table.

    ``solved_at`` is the mean return that counts as solved: Gymnasium's threshold where it has one.
    Pendulum's is the mark commonly used: the pendulum goes straight up and stays. Probes, and
    transition tables without a threshold, count as solved within 5% of the exact optimum; so does
    Taxi, whose optimum, 7.93, is below Gymnasium's threshold of 8. Elsewhere no mark is agreed on.
    """

    id: str
    backend: str
    action: str
    observation: str
    summary: str
    solved_at: float | None = None
    alias: str | None = None


def _entries(backend: str, *rows: tuple) -> tuple[EnvEntry, ...]:
    return tuple(EnvEntry(row[0], backend, *row[1:]) for row in rows)


# Not here: MNISTBandit-bsuite, which downloads its images when it is made.
_GYMNAX = _entries(
    "gymnax",
    ("CartPole-v1", "Discrete(2)", "Box(4)", "balance a pole on a moving cart", 475.0),
    ("Acrobot-v1", "Discrete(3)", "Box(6)", "swing a two-link arm above a line", -100.0),
    ("MountainCar-v0", "Discrete(3)", "Box(2)", "rock a weak car out of a valley", -110.0),
    ("MountainCarContinuous-v0", "Box(1)", "Box(2)", "the same with a throttle", 90.0),
    ("Pendulum-v1", "Box(1)", "Box(3)", "swing a pendulum up and hold it", -200.0),
    ("Asterix-MinAtar", "Discrete(5)", "Box(10×10×4)", "collect gold, avoid enemies"),
    ("Breakout-MinAtar", "Discrete(3)", "Box(10×10×4)", "clear bricks with a ball"),
    ("Freeway-MinAtar", "Discrete(3)", "Box(10×10×7)", "cross a road with traffic"),
    ("Seaquest-MinAtar", "Discrete(6)", "Box(10×10×10)", "rescue divers, mind the oxygen"),
    ("SpaceInvaders-MinAtar", "Discrete(4)", "Box(10×10×6)", "shoot descending aliens"),
    ("Catch-bsuite", "Discrete(3)", "Box(10×5)", "catch a falling ball"),
    ("DeepSea-bsuite", "Discrete(2)", "Box(8×8)", "one costly path to a treasure: exploration"),
    ("DiscountingChain-bsuite", "Discrete(5)", "Box(2)", "rewards at several delays"),
    ("MemoryChain-bsuite", "Discrete(2)", "Box(3)", "recall the first observation: memory"),
    ("SimpleBandit-bsuite", "Discrete(11)", "Box(1×1)", "eleven arms, one step"),
    ("UmbrellaChain-bsuite", "Discrete(2)", "Box(3)", "an early choice among noisy rewards"),
    ("BernoulliBandit-misc", "Discrete(2)", "Box(4)", "two arms, new in every episode"),
    ("FourRooms-misc", "Discrete(4)", "Box(4)", "find the goal through doorways"),
    ("FrozenLake-misc", "Discrete(4)", "Discrete(16)", "gymnax's own FrozenLake"),
    ("GaussianBandit-misc", "Discrete(2)", "Box(4)", "one safe arm and one uncertain"),
    ("MetaMaze-misc", "Discrete(4)", "Box(15)", "find a goal again and again: memory"),
    ("PointRobot-misc", "Box(2)", "Box(6)", "find a hidden goal on a half circle: memory"),
    ("Pong-misc", "Discrete(3)", "Box(30×40×3)", "keep the ball in play"),
    ("Reacher-misc", "Box(2)", "Box(8)", "bring a two-joint arm to a goal"),
    ("Swimmer-misc", "Box(2)", "Box(16)", "swim to a goal past urchins"),
)

_TABULAR = _entries(
    "tabular",
    ("FrozenLake-v1", "Discrete(4)", "Discrete(16)", "cross a slippery lake with holes", 0.7),
    ("FrozenLake8x8-v1", "Discrete(4)", "Discrete(64)", "the same, larger", 0.85),
    ("CliffWalking-v1", "Discrete(4)", "Discrete(48)", "the short way runs along a cliff", -13.65),
    ("CliffWalkingSlippery-v1", "Discrete(4)", "Discrete(48)", "the same, slippery", -67.94),
    ("Taxi-v4", "Discrete(6)", "Discrete(500)", "pick up a passenger, set it down", 7.534),
)

_PROBES = _entries(
    "probe",
    ("Probe1-v0", "Discrete(1)", "Box(1)", "reward 1: the value loss", 0.95, "ConstantReward"),
    (
        "Probe2-v0",
        "Discrete(1)",
        "Box(1)",
        "reward = observation: values see it",
        None,  # nothing to choose: the return is 0 on average
        "RewardFromObservation",
    ),
    ("Probe3-v0", "Discrete(1)", "Box(1)", "a step late: discounting", 0.95, "DelayedReward"),
    ("Probe4-v0", "Discrete(2)", "Box(1)", "reward = action: policy", 0.95, "RewardFromAction"),
    ("Probe5-v0", "Discrete(2)", "Box(1)", "action must fit: all of it", 0.95, "RewardFromBoth"),
)

_ENTRIES = _GYMNAX + _TABULAR + _PROBES

# Backends that users may know from elsewhere, and the extra that brings their packages.
PLANNED_BACKENDS = {
    "brax": "brax",
    "playground": "playground",
}


def list_environments() -> list[EnvEntry]:
    """Every environment that ``make`` knows by name."""
    return list(_ENTRIES)


def entry_of(env_id: str) -> EnvEntry | None:
    """The table's line for an id without a backend prefix, or for an alias."""
    return next((entry for entry in _ENTRIES if env_id in (entry.id, entry.alias)), None)


def within_five_percent(optimum: float) -> float:
    """The mean return that is worse than the optimum by 5% of its size, to four digits."""
    return float(f"{optimum - 0.05 * abs(optimum):.4g}")
