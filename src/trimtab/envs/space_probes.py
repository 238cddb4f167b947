"""Probe environments for every kind of observation and action: whether a policy sees and acts.

At the beginning of an episode a coin is tossed; the observation shows it in the form of its space,
and the reward, between 0 and 1, says how well the action fits the coin in the form of its own. A
policy that cannot see, or cannot reach an action, stays at what chance gives. Any observation goes
with any action, so these find what is broken in a new encoder or distribution in seconds.

| observation | how it shows the coin |
|---|---|
| box, discrete | as a number |
| multidiscrete, multibinary | as a bit, beside a part that means nothing |
| image | one half of a uint8 picture is bright |
| dict | a box and an image in nested dictionaries, beside a part that means nothing |
| masked | as a box, with a mask that forbids every discrete action but two |
| private | only under the key ``private``, beside a key ``public`` that means nothing |
| memory | as a box, at the first step only; rewarded is the action at the last |

| action | what fits |
|---|---|
| discrete | action 0 or 1, of four |
| multidiscrete | (0, 2) or (1, 0), of (2, 3) |
| multibinary | (0, 1, 0) or (1, 0, 1) |
| box | (3, −1) or (−1, 3), of [−2, 4]² |
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.errors import SettingError, did_you_mean
from trimtab.spaces import (
    ACTION_MASK,
    Box,
    Dict,
    Discrete,
    EnvSpec,
    MultiBinary,
    MultiDiscrete,
    Space,
)
from trimtab.types import Transition

IMAGE_SIDE = 6
_SIGNAL = Box.of(-1.0, 1.0, (1,))
_IMAGE = Box.of(0, 255, (IMAGE_SIDE, IMAGE_SIDE, 1), "uint8")


class CoinState(NamedTuple):
    """The coin, 0 or 1, and how many steps were taken."""

    coin: Array
    time: Array


class _Shown(NamedTuple):
    space: Space
    show: Callable[[Array, Array], Any]  # the coin and the time as an observation


class _Acted(NamedTuple):
    space: Space
    fit: Callable[[Array, Array], Array]  # how well an action fits the coin, 0 to 1


def _signal(coin: Array) -> Array:
    return (2.0 * coin.astype(jnp.float32) - 1.0).reshape(1)


def _picture(coin: Array) -> Array:
    left = jnp.arange(IMAGE_SIDE) < IMAGE_SIDE // 2
    bright = left == (coin == 1)
    row = jnp.where(bright, 255, 0).astype(jnp.uint8)
    return jnp.broadcast_to(row[None, :, None], _IMAGE.shape)


def _nested(coin: Array, time: Array) -> Any:
    return {"eyes": {"camera": _picture(coin), "nothing": time}, "arm": jnp.zeros(2)}


OBSERVATIONS = {
    "box": _Shown(_SIGNAL, lambda coin, time: _signal(coin)),
    "discrete": _Shown(Discrete(3), lambda coin, time: coin),
    "multidiscrete": _Shown(MultiDiscrete((3, 2)), lambda coin, time: jnp.stack([time % 3, coin])),
    "multibinary": _Shown(
        MultiBinary(2), lambda coin, time: jnp.stack([coin, time % 2]).astype(jnp.int8)
    ),
    "image": _Shown(_IMAGE, lambda coin, time: _picture(coin)),
    "dict": _Shown(
        Dict.of(
            {
                "eyes": Dict.of({"camera": _IMAGE, "nothing": Discrete(64)}),
                "arm": Box.of(-1.0, 1.0, (2,)),
            }
        ),
        _nested,
    ),
    "masked": _Shown(
        Dict.of({"signal": _SIGNAL, ACTION_MASK: MultiBinary(4)}),
        lambda coin, time: {
            "signal": _signal(coin),
            ACTION_MASK: jnp.array([1, 1, 0, 0], jnp.int8),
        },
    ),
    "private": _Shown(
        Dict.of({"public": _SIGNAL, "private": _SIGNAL}),
        lambda coin, time: {"public": jnp.zeros(1), "private": _signal(coin)},
    ),
    "memory": _Shown(_SIGNAL, lambda coin, time: jnp.where(time == 0, _signal(coin), 0.0)),
}


def _share(right: Array) -> Array:
    return right.astype(jnp.float32).mean()


def _near(coin: Array, action: Array) -> Array:
    wanted = jnp.where(coin == 1, jnp.array([-1.0, 3.0]), jnp.array([3.0, -1.0]))
    return jnp.maximum(0.0, 1.0 - jnp.abs(action - wanted).mean() / 3.0)


ACTIONS = {
    "discrete": _Acted(Discrete(4), lambda coin, action: _share(action == coin)),
    "multidiscrete": _Acted(
        MultiDiscrete((2, 3)),
        lambda coin, action: _share(action == jnp.stack([coin, 2 - 2 * coin])),
    ),
    "multibinary": _Acted(
        MultiBinary(3),
        lambda coin, action: _share(action.astype(jnp.int32) == jnp.stack([coin, 1 - coin, coin])),
    ),
    "box": _Acted(Box.of(-2.0, 4.0, (2,)), lambda coin, action: _near(coin, action)),
}


@final
@dataclasses.dataclass(frozen=True, eq=False)
class SpaceProbe:
    """An episode of ``length`` steps with one coin; equality and hash are those of identity."""

    spec: EnvSpec
    length: int
    shown: _Shown
    acted: _Acted
    at_the_end: bool  # whether only the last action is rewarded

    def reset(self, key: Array) -> tuple[CoinState, Any]:
        """A new coin."""
        coin = jax.random.bernoulli(key).astype(jnp.int32)
        state = CoinState(coin, jnp.int32(0))
        return state, self.shown.show(state.coin, state.time)

    def step(self, key: Array, state: CoinState, action: Any) -> tuple[CoinState, Transition]:
        """One transition; the last one terminates."""
        del key
        after = CoinState(state.coin, state.time + 1)
        last = after.time >= self.length
        fit = self.acted.fit(state.coin, jnp.asarray(action))
        return after, Transition(
            obs=self.shown.show(after.coin, after.time),
            reward=jnp.where(last, fit, 0.0) if self.at_the_end else fit / self.length,
            terminated=last,
            truncated=jnp.zeros((), bool),
        )


def space_probe(observation: str = "box", action: str = "discrete", length: int = 1) -> SpaceProbe:
    """The probe of an observation and an action; the best return is 1."""
    for what, given, known in (
        ("observation", observation, OBSERVATIONS),
        ("action", action, ACTIONS),
    ):
        if given not in known:
            raise SettingError(
                f"{what} = {given!r}: expected one of {', '.join(known)}."
                f"{did_you_mean(given, known)}"
            )
    if observation == "masked" and action != "discrete":
        raise SettingError("observation = masked forbids discrete actions: give action = discrete.")
    shown, acted = OBSERVATIONS[observation], ACTIONS[action]
    spec = EnvSpec(
        id=f"SpaceProbe-{observation}-{action}-{length}",
        observation=shown.space,
        action=acted.space,
        max_episode_steps=length,
        solved_at=0.9,
    )
    return SpaceProbe(spec, length, shown, acted, at_the_end=observation == "memory")
