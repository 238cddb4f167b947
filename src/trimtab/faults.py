"""What can go wrong with an environment that is not in the compiled program, and how it is met.

Nothing here imports JAX: worker processes read it too.
"""

import dataclasses
from collections import defaultdict, deque
from typing import Literal, final

from trimtab.errors import EnvironmentFaultError

# ``max_restarts`` restarts of a lane are allowed within this many of its steps. So an environment
# that crashes now and then trains for ever, and one that crashes at once ends the run soon.
RESTART_WINDOW = 1_000


@dataclasses.dataclass(frozen=True)
class FaultPolicy:
    """What is done about an environment that raises, hangs, or answers with nonsense."""

    on_bad_env: Literal["raise", "reset"] = "raise"  # what nonsense leads to
    max_restarts: int = 10  # of a lane, within RESTART_WINDOW of its steps
    observation_bounds: Literal["enforce", "ignore"] = "enforce"  # of a Box


@dataclasses.dataclass(frozen=True)
class Deadlines:
    """How long a worker process may take, in seconds; then it is killed and replaced."""

    step: float = 60.0  # for one step of its lanes
    start: float = 120.0  # to make and reset its environments


@dataclasses.dataclass(frozen=True)
class LaneFault:
    """One fault of one lane."""

    kind: Literal["raised", "bad", "hung", "died"]
    env_id: str
    lane: int
    episode: int  # of the lane, counted from 1
    step: int  # of that episode, counted from 1; 0 is its reset
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        moment = f"step {self.step}" if self.step else "the reset"
        words = f"{self.env_id}, lane {self.lane}, {moment} of episode {self.episode}"
        return f"{words}: {self.message}"

    def error(self, advice: str = "") -> EnvironmentFaultError:
        """The error that ends a run with this fault."""
        sentences = f"{str(self).removesuffix('.')}. {advice}".rstrip()
        parts = [sentences, self.traceback.rstrip()]
        return EnvironmentFaultError("\n\n".join(part for part in parts if part))


@final
class RestartBudget:
    """Counts the restarts of lanes, and says when they are too many."""

    def __init__(self, max_restarts: int):
        self._max_restarts = max_restarts
        self._restarted_at: defaultdict[int, deque[int]] = defaultdict(deque)

    def spend(self, fault: LaneFault, lane_steps: int) -> None:
        """One restart of the fault's lane, ``lane_steps`` steps into the run, or an error."""
        recent = self._restarted_at[fault.lane]
        recent.append(lane_steps)
        while recent[0] <= lane_steps - RESTART_WINDOW:
            recent.popleft()
        if len(recent) <= self._max_restarts:
            return
        raise fault.error(
            f"The lane had been restarted {self._max_restarts} times within {RESTART_WINDOW:,} of "
            "its steps already, which is the limit (max_restarts)."
            if self._max_restarts
            else "No restart is allowed (max_restarts = 0)."
        )
