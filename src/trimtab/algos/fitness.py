"""Whether an algorithm and its settings fit an environment; each misfit is a sentence."""

import dataclasses
from typing import Any

from trimtab.errors import SettingError, did_you_mean
from trimtab.nets.heads import check_action_space
from trimtab.spaces import Box, Dict, EnvSpec, without_mask

# Settings that matter for continuous actions only.
CONTINUOUS = ("action_distribution", "initial_log_std", "state_dependent_std")


def check_environment(algorithm: Any, spec: EnvSpec) -> None:
    """Refuse an environment that the algorithm cannot act in, and settings without effect on it."""
    check_action_space(spec)
    _check_keys(algorithm, spec)
    box = spec.action if isinstance(spec.action, Box) else None
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        # A number that is traced cannot be compared; its run compared it before tracing.
        changed = isinstance(value, str | bool | float) and value != field.default
        if box is None and changed and field.name in CONTINUOUS:
            raise SettingError(
                f"{field.name} = {value} has no effect on {spec.id}, whose actions are "
                f"{spec.action}: leave it out."
            )
    if box is not None and algorithm.action_distribution == "tanh" and not box.bounded:
        raise SettingError(
            f"action_distribution = tanh needs actions with a low and a high; those of {spec.id} "
            f"are {box}. Leave it at gaussian."
        )


def _check_keys(algorithm: Any, spec: EnvSpec) -> None:
    shown = without_mask(spec.observation)
    for name in ("actor_keys", "critic_keys"):
        keys = getattr(algorithm, name)
        if not keys:
            continue
        if not isinstance(shown, Dict):
            raise SettingError(
                f"{name} has no effect on {spec.id}, whose observations are {shown} and not a "
                f"dictionary: leave it out."
            )
        unknown = next((key for key in keys if key not in shown.keys), None)
        if unknown is not None:
            raise SettingError(
                f"{name}: the observations of {spec.id} have no {unknown!r}; they have "
                f"{', '.join(shown.keys)}.{did_you_mean(unknown, shown.keys)}"
            )
