"""A Gymnasium environment with somebody who looks at what it returns before adapters mend it.

Adapters copy, narrow and convert, so training does not suffer from a reused array or a float64. But
other libraries do, and each is a sign of a slip. No JAX here.
"""

import time
from collections.abc import Callable
from typing import Any, final

import numpy as np

from trimtab.checking.findings import Finding, Findings
from trimtab.envs.patience import at_most


@final
class WatchedEnv:
    """Passes everything on to an environment; looks at what comes back, and takes its time."""

    def __init__(self, env: Any, findings: Findings, deadline: float):
        self._env, self._findings, self._deadline = env, findings, deadline
        self._shown: list[tuple[np.ndarray, np.ndarray]] = []  # arrays it returned, and copies
        self._time = self._episode = 0
        self.step_seconds: list[float] = []
        self.reset_seconds: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, **given: Any) -> Any:
        self._time, self._episode = 0, self._episode + 1
        answer = self._timed("reset()", self.reset_seconds, lambda: self._env.reset(**given))
        if isinstance(answer, tuple) and len(answer) == 2:
            self._look_at_info("reset", answer[1])
            self._look_at_observation(answer[0])
        return answer

    def step(self, action: Any) -> Any:
        self._time += 1
        before = np.array(action)
        answer = self._timed("step()", self.step_seconds, lambda: self._env.step(action))
        if not np.array_equal(before, action):
            self._say("warning", "buffers", "step() writes into the action that it is given",
                      "work on a copy: action = np.array(action)")  # fmt: skip
        if isinstance(answer, tuple) and len(answer) == 5:
            self._look_at_info("step", answer[4])
            self._look_at_flags(*answer[2:])
            self._look_at_observation(answer[0])
        return answer

    def _timed(self, what: str, times: list[float], call: Callable[[], Any]) -> Any:
        with at_most(self._deadline, what):
            begun = time.perf_counter()
            answer = call()
            times.append(time.perf_counter() - begun)
        return answer

    @property
    def _place(self) -> str:
        moment = f"step {self._time}" if self._time else "the reset"
        return f"{moment} of episode {self._episode}"

    def _say(self, level: Any, check: str, what: str, advice: str) -> None:
        self._findings.add(Finding(level, check, what, self._place, advice))

    def _look_at_info(self, check: str, info: Any) -> None:
        if not isinstance(info, dict):
            self._say("warning", check, f"{check}() returned a {type(info).__name__} as its info",
                      "return a dict, {} if there is nothing to say")  # fmt: skip

    def _look_at_flags(self, terminated: Any, truncated: Any, info: Any) -> None:
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_) and flag is not None:
                self._say("warning", "step", f"{name} is a {type(flag).__name__}",
                          f"return bool({name})")  # fmt: skip
        if isinstance(info, dict) and info.get("TimeLimit.truncated") and not _true(truncated):
            self._say(
                "error", "episodes", "the info says TimeLimit.truncated, but truncated is False: "
                "the clock's end is learned from as if the task had ended",
                "return truncated=True there, and terminated=False",
            )  # fmt: skip
        elif _true(terminated) and _true(truncated):
            self._say("note", "episodes", "terminated and truncated are both set",
                      "nothing: it counts as terminated")  # fmt: skip

    def _look_at_observation(self, observation: Any) -> None:
        space = self._env.observation_space
        leaves = list(_leaves(space, observation, ""))
        for name, theirs, value in leaves:
            self._look_at_leaf(name, theirs, value)
        self._look_for_extra_keys(space, observation)
        changed = any(
            not np.array_equal(array, copy, equal_nan=copy.dtype.kind == "f")
            for array, copy in self._shown
        )
        if changed:
            self._say(
                "warning", "buffers",
                "the observation that was returned before has changed since: its array is reused",
                "return a copy, such as self.state.copy(); trimtab copies, others may not",
            )  # fmt: skip
        arrays = [value for _, _, value in leaves if isinstance(value, np.ndarray)]
        self._shown = [(value, value.copy()) for value in arrays if value.dtype.kind in "fiub"]

    def _look_at_leaf(self, name: str, space: Any, value: Any) -> None:
        part = f"the observation's part {name!r}" if name else "the observation"
        if getattr(space, "shape", None) and not isinstance(value, np.ndarray):
            self._say("warning", "values", f"{part} is a {type(value).__name__}, not an array",
                      f"return np.array(…, np.{space.dtype})")  # fmt: skip
            return
        given = getattr(value, "dtype", None)
        if given is None or given == space.dtype or given.kind not in "fiub" or not space.shape:
            return
        self._say(
            "warning", "values", f"{part} has dtype {given}; its space says {space.dtype}",
            f"return observation.astype(np.{space.dtype}), or give the space dtype=np.{given}; "
            "trimtab converts, if no number is lost",
        )  # fmt: skip

    def _look_for_extra_keys(self, space: Any, observation: Any) -> None:
        parts = getattr(space, "spaces", None)
        if isinstance(parts, dict) and isinstance(observation, dict):
            for key in observation:
                if key not in parts:
                    self._say("warning", "values", f"the observation has a part {key!r}, which "
                              "is not in its space and is dropped",
                              "add it to the space, or leave it out")  # fmt: skip


def _leaves(space: Any, value: Any, name: str) -> Any:
    """(name, space, value) of each array that is there; what is missing, adapters name."""
    parts = getattr(space, "spaces", None)
    if parts is None:
        yield name, space, value
        return
    for key, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
        try:
            inner = value[key]
        except (KeyError, IndexError, TypeError):
            continue
        yield from _leaves(part, inner, f"{name}.{key}" if name else str(key))


def _true(flag: Any) -> bool:
    return isinstance(flag, bool | np.bool_ | int | np.integer) and bool(flag)
