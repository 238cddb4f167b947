"""Where the time of a run on host environments goes: for ``host_ppo.py --profile``.

Each part is timed where it is called, so the parts add up to the whole; what is left is Python
between them: the rows of the rollout, episode statistics, and the loops themselves.
"""

import time
from collections.abc import Callable
from typing import Any

import harness
import sessions

PARTS = {
    "simulator": "the environments' own step() and reset()",
    "border": "looking at every number they return, and new episodes",
    "acting": "one call of the compiled policy a step, and its actions as numpy",
    "noise": "once a rollout: random numbers, and parameters as one vector",
    "learning": "the update",
}


class Stopwatch:
    """Seconds spent in some calls; a call inside of another counts for itself alone."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._inside = [0.0]  # of each call that goes on: the seconds of calls inside of it

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, with its time added to a part."""

        def measured(*given: Any, **named: Any) -> Any:
            self._inside.append(0.0)
            begun = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                elapsed = time.perf_counter() - begun
                self.seconds[part] += elapsed - self._inside.pop()
                self._inside[-1] += elapsed

        return measured


def table(configuration: Any, steps: int, name: str) -> str:
    """Microseconds of an environment step, by part."""
    session = sessions.opened(configuration)
    watch = Stopwatch()
    advance, batch = sessions.advancing(session, watch.timed)
    calls = max(1, steps // batch)
    advance()
    watch.seconds = dict.fromkeys(PARTS, 0.0)
    begun = time.perf_counter()
    for _ in range(calls):
        advance()
    whole = time.perf_counter() - begun
    session.close()
    per_step = 1e6 / (calls * batch)
    rows = [
        [part, f"{seconds * per_step:.1f}", f"{100 * seconds / whole:.0f}%", PARTS[part]]
        for part, seconds in watch.seconds.items()
    ]
    rest = whole - sum(watch.seconds.values())
    rows.append(["the rest", f"{rest * per_step:.1f}", f"{100 * rest / whole:.0f}%", "see above"])
    rows.append(["all", f"{whole * per_step:.1f}", "100%", f"{calls * batch / whole:,.0f} steps/s"])
    return f"{name}\n{harness.table(['part', 'µs a step', 'share', ''], rows)}"
