"""A PPO policy of Stable-Baselines3: its zip file, and its VecNormalize, as arrays.

What differs there: torch keeps weights as [out, in]; a continuous policy acts in the environment's
own units, and ours in [−1, 1]; VecNormalize divides by √(variance + ε).
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.errors import ExportError
from trimtab.export.pickles import Standin, member, opened, plain, read_pickle, read_torch
from trimtab.spaces import Box, EnvSpec

_ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "ELU": "elu", "SiLU": "silu"}
_CLIP = 10.0  # what both normalisers clip to, unless told otherwise


class Layer(NamedTuple):
    weight: np.ndarray  # [in, out]
    bias: np.ndarray


@dataclasses.dataclass(frozen=True)
class Normaliser:
    mean: np.ndarray
    variance: np.ndarray
    count: float


@dataclasses.dataclass(frozen=True)
class Sb3Policy:
    """What was found in the files."""

    actor: list[Layer]
    critic: list[Layer]
    log_std: np.ndarray | None
    normaliser: Normaliser | None
    steps: int
    settings: dict[str, Any]  # as trimtab calls them

    def for_action(self, spec: EnvSpec) -> "Sb3Policy":
        """The same policy with actions in [−1, 1], where trimtab's are.

        a = middle + reach a':   W' = W / reach,  b' = (b − middle) / reach,  σ' = σ / reach
        """
        space = spec.action
        if not isinstance(space, Box):
            return self
        low, high = (bound.ravel() for bound in space.bounds())
        bounded = space.bounded_elements().ravel()
        reach = np.where(bounded, (high - low) / 2, 1.0)
        middle = np.where(bounded, (high + low) / 2, 0.0)
        last = self.actor[-1]
        if last.bias.shape != reach.shape or self.log_std is None:
            raise ExportError(f"The policy does not act in {space}, the actions of {spec.id}.")
        scaled = Layer(last.weight / reach, (last.bias - middle) / reach)
        log_std = self.log_std - np.log(reach)
        return dataclasses.replace(self, actor=[*self.actor[:-1], scaled], log_std=log_std)


def read_sb3(path: Path, normalizer: Path | None = None) -> Sb3Policy:
    """The policy in a file of ``PPO.save``, with the statistics in one of ``VecNormalize.save``."""
    what = str(path)
    with opened(_content(path), what) as archive:
        about = _json(member(archive, "data"), what)
        weights = read_torch(member(archive, "policy.pth"), f"policy.pth in {what}")
    _require_plain(about, weights, what)
    actor = _layers(weights, "mlp_extractor.policy_net", "action_net", what)
    critic = _layers(weights, "mlp_extractor.value_net", "value_net", what)
    sizes = [[layer.bias.size for layer in layers[:-1]] for layers in (actor, critic)]
    if sizes[0] != sizes[1]:
        raise ExportError(
            f"{what}: the hidden layers of its actor have {sizes[0]} units, those of its critic "
            f"{sizes[1]}; trimtab has the same for both."
        )
    statistics = _normaliser(normalizer) if normalizer else None
    return Sb3Policy(
        actor,
        critic,
        weights.get("log_std"),
        statistics,
        int(about.get("num_timesteps", 0)),
        _settings(about, tuple(sizes[0]), statistics is not None),
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror}.") from error


def _json(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{what} is damaged: its member 'data' is not JSON.") from error
    return found if isinstance(found, dict) else {}


def _require_plain(about: Mapping[str, Any], weights: Mapping[str, Any], what: str) -> None:
    if "action_net.weight" not in weights:
        raise ExportError(f"{what} holds no policy of PPO or A2C.")
    if about.get("use_sde"):
        raise ExportError(f"{what} explores with gSDE, which trimtab does not have.")
    odd = [
        name
        for name in weights
        if name.partition(".")[0] not in ("mlp_extractor", "action_net", "value_net", "log_std")
        or "shared_net" in name
    ]
    if odd:
        raise ExportError(
            f"{what} holds more than the two MLPs of an MlpPolicy ({odd[0]}); only those can be "
            "imported."
        )


def _layers(weights: Mapping[str, np.ndarray], hidden: str, head: str, what: str) -> list[Layer]:
    numbers = [re.fullmatch(rf"{re.escape(hidden)}\.(\d+)\.weight", name) for name in weights]
    names = [f"{hidden}.{n}" for n in sorted(int(found[1]) for found in numbers if found)]
    layers = []
    for name in [*names, head]:
        weight, bias = weights.get(f"{name}.weight"), weights.get(f"{name}.bias")
        if weight is None or bias is None or weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise ExportError(f"{what} is damaged: {name} has no weight and bias that fit.")
        layers.append(Layer(np.array(weight.T, np.float32), np.array(bias, np.float32)))
    return layers


def _settings(
    about: Mapping[str, Any], hidden_sizes: tuple[int, ...], normalised: bool
) -> dict[str, Any]:
    """How it was trained, as far as the file says it in plain text."""
    kwargs = about.get("policy_kwargs") or {}
    kind = re.search(r"activation\.(\w+)", str(kwargs.get("activation_fn", "activation.Tanh")))
    name = kind[1] if kind else ""
    if name not in _ACTIVATIONS:
        raise ExportError(
            f"The policy's nonlinearity is {kwargs.get('activation_fn')}; trimtab has "
            f"{', '.join(_ACTIVATIONS)}."
        )
    found: dict[str, Any] = {
        "num_envs": about.get("n_envs"),
        "num_steps": about.get("n_steps"),
        "gamma": about.get("gamma"),
        "gae_lambda": about.get("gae_lambda"),
        "epochs": about.get("n_epochs"),
        "entropy_coefficient": about.get("ent_coef"),
        "max_grad_norm": about.get("max_grad_norm"),
        "learning_rate": about.get("learning_rate"),
        "clip_range": _constant(about.get("clip_range")),
    }
    if isinstance(about.get("vf_coef"), float):
        found["value_coefficient"] = 2 * about["vf_coef"]  # its value loss has no ½
    found = {key: value for key, value in found.items() if isinstance(value, (int, float))}
    batch = found.get("num_envs", 0) * found.get("num_steps", 0)
    size = about.get("batch_size")
    if isinstance(size, int) and size > 0 and batch % size == 0:
        found["minibatches"] = batch // size
    return {
        **found,
        "hidden_sizes": hidden_sizes,
        "activation": _ACTIVATIONS[name],
        "normalize_observations": normalised,
    }


def _constant(schedule: Any) -> float | None:
    text = schedule.get("value_schedule", "") if isinstance(schedule, dict) else ""
    found = re.fullmatch(r"ConstantSchedule\(val=([\d.e+-]+)\)", str(text))
    return float(found[1]) if found else None


def _normaliser(path: Path) -> Normaliser | None:
    found = read_pickle(_content(path), str(path))
    state = found.state if isinstance(found, Standin) else None
    if not isinstance(state, dict) or "obs_rms" not in state:
        raise ExportError(f"{path} holds no VecNormalize.")
    if not state.get("norm_obs", True):
        return None
    if float(state.get("clip_obs", _CLIP)) != _CLIP:
        raise ExportError(
            f"{path} clips observations to ±{state['clip_obs']:g}; trimtab clips to ±{_CLIP:g}."
        )
    rms = getattr(state["obs_rms"], "state", None)
    mean, variance = (np.asarray(plain((rms or {}).get(name))) for name in ("mean", "var"))
    if not isinstance(rms, dict) or mean.dtype.kind != "f" or mean.shape != variance.shape:
        raise ExportError(f"{path} normalises dictionaries, which cannot be imported.")
    epsilon = float(plain(state.get("epsilon", 1e-8)))
    return Normaliser(mean, variance + epsilon, float(plain(rms.get("count", 1.0))))
