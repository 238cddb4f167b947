"""Settings of a run that change what a Gymnasium environment is; ``wrappers`` has JAX's.

Nothing here imports JAX: worker processes use it too.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, final

import gymnasium


@final
class RepeatedActions(gymnasium.Wrapper):
    """Each action is taken ``times`` times, or until the episode ends; rewards are added up."""

    def __init__(self, env: gymnasium.Env, times: int):
        super().__init__(env)
        self._times = times

    def step(self, action: Any) -> Any:
        """That many steps, which are one to the policy and to everything that counts steps."""
        answer: Any = self.env.step(action)
        for _ in range(1, self._times):
            # What is no answer of a step, or ends the episode, is shown as it is.
            if not (isinstance(answer, tuple) and len(answer) == 5) or answer[2] or answer[3]:
                break
            before, answer = answer, self.env.step(action)
            # A reward that cannot be added is shown too.
            with contextlib.suppress(TypeError, IndexError):
                answer = (answer[0], before[1] + answer[1], *answer[2:])
        return answer


@final
@dataclasses.dataclass(frozen=True)
class ChangedMaker:
    """Makes what ``func`` makes, with actions repeated and episodes cut as a run's settings say."""

    func: Callable[[], Any]
    action_repeat: int
    max_episode_steps: int | None

    def __call__(self) -> gymnasium.Env:
        env = self.func()
        if self.action_repeat > 1:
            env = RepeatedActions(env, self.action_repeat)
        if self.max_episode_steps is not None:
            env = gymnasium.wrappers.TimeLimit(env, self.max_episode_steps)
        return env
