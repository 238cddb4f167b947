"""Atari through Gymnasium, with the usual preprocessing: Gymnasium's own wrappers, put together.

An id ``ALE/…`` gets, unless ``preprocessing`` is false:

    up to ``noop_max`` (30) idle frames at the start; each action for ``frame_skip`` (4) frames, the
    last two of them merged; grey images of ``screen_size`` (84) pixels, the last ``frame_stack``
    (4) of them; and for learning alone: a lost life ends the episode (``terminal_on_life_loss``),
    and rewards are −1, 0 or 1 (``clip_rewards``)

Evaluations play whole games and count their score. After a lost life Gymnasium's wrapper begins a
new game. Nothing here imports JAX: worker processes use it too.
"""

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, final

import gymnasium

from trimtab.errors import SettingError, UnknownEnvironmentError

PREFIX = "ALE/"
_DEFAULTS: dict[str, Any] = {
    "noop_max": 30,
    "frame_skip": 4,
    "screen_size": 84,
    "frame_stack": 4,
    "terminal_on_life_loss": True,
    "clip_rewards": True,
}
_FOR_LEARNING = ("terminal_on_life_loss", "clip_rewards")


@final
@dataclasses.dataclass(frozen=True)
class AtariMaker:
    """Makes a game with its preprocessing; it can be sent to a process."""

    id: str
    options: Mapping[str, Any]  # of the game itself
    preprocessing: Mapping[str, Any]

    def __call__(self) -> gymnasium.Env:
        gymnasium.register_envs(importlib.import_module("ale_py"))
        given = self.preprocessing
        # The wrapper below skips frames, and must see each of them.
        game = gymnasium.make(self.id, disable_env_checker=True, **{"frameskip": 1, **self.options})
        env: gymnasium.Env = gymnasium.wrappers.AtariPreprocessing(
            game,
            noop_max=given["noop_max"],
            frame_skip=given["frame_skip"],
            screen_size=given["screen_size"],
            terminal_on_life_loss=given["terminal_on_life_loss"],
        )
        if given["clip_rewards"]:
            env = gymnasium.wrappers.TransformReward(env, _sign)
        return gymnasium.wrappers.FrameStackObservation(env, given["frame_stack"])


def _sign(reward: Any) -> float:
    return float((reward > 0) - (reward < 0))


def makers_of(env_id: str, options: Mapping[str, Any]) -> tuple[Callable[[], Any], Callable] | None:
    """What makes a game to learn from, and one to evaluate; None if it is to be left as it is."""
    rest = dict(options)
    wanted = rest.pop("preprocessing", True)
    if not isinstance(wanted, bool):
        raise SettingError(f"preprocessing = {wanted!r}: expected true or false.")
    if not wanted:
        for name in _DEFAULTS:
            if name in rest:
                raise SettingError(f"{name} has no effect on {env_id} with preprocessing = false.")
        return None
    given = {name: _checked(name, rest.pop(name, default)) for name, default in _DEFAULTS.items()}
    if rest.get("frameskip", 1) != 1:
        raise SettingError(
            f"frameskip = {rest['frameskip']}: the preprocessing of {env_id} skips frames itself. "
            "Give frame_skip, or preprocessing = false."
        )
    _require_packages(env_id)
    for_score = {**given, **dict.fromkeys(_FOR_LEARNING, False)}
    return AtariMaker(env_id, rest, given), AtariMaker(env_id, rest, for_score)


def without_preprocessing(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the game itself, where it is to be left as it is."""
    return {name: value for name, value in options.items() if name != "preprocessing"}


def _checked(name: str, value: Any) -> Any:
    default = _DEFAULTS[name]
    kind = type(default)
    if type(value) is not kind or (kind is int and value < (0 if name == "noop_max" else 1)):
        words = "true or false" if kind is bool else "a whole number from 1"
        raise SettingError(f"{name} = {value!r} is not valid: expected {words}, as in {default!r}.")
    return value


def _require_packages(env_id: str) -> None:
    for package in ("ale_py", "cv2"):
        if importlib.util.find_spec(package) is None:
            raise UnknownEnvironmentError(
                f"{env_id} needs the package {package}, which is not installed. It comes with: "
                "pip install 'trimtab[atari]'"
            )
