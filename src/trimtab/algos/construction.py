"""How an algorithm's settings become networks, an optimiser, and the numbers of an update.

As in ``onpolicy``, some of these functions are methods of the algorithms that name them.
"""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.algos.fitness import check_environment
from trimtab.algos.observations import statistics_of
from trimtab.algos.onpolicy import Learner
from trimtab.algos.optimisers import Adam, Descent
from trimtab.algos.schedules import Schedule
from trimtab.nets.actor_critic import ActorCritic, Design
from trimtab.nets.flat import Flat
from trimtab.ops.running import Running
from trimtab.spaces import EnvSpec

Class = TypeVar("Class", bound=type)

# What may change over a run, and how the settings of its schedule begin.
SCHEDULED = {
    "learning_rate": "learning_rate",
    "entropy_coefficient": "entropy",
    "clip_range": "clip_range",
}


def numbers_are_leaves(cls: Class) -> Class:
    """Register an algorithm as a pytree: its floats are leaves, which may be traced and mapped.

    All else gives shapes or code, and is static. A number that is none is no leaf: whether a
    setting is on may be asked while the program is traced.
    """
    fields = dataclasses.fields(cls)
    leaves = [field.name for field in fields if field.type in (float, float | None)]
    static = [field.name for field in fields if field.name not in leaves]
    jax.tree_util.register_dataclass(cls, data_fields=leaves, meta_fields=static)
    return cls


def init(algorithm: Any, key: Array, spec: EnvSpec) -> Learner:
    """A new learner for an environment."""
    check_environment(algorithm, spec)
    parameters = Flat.of(ActorCritic.make(key, spec, design_of(algorithm)))
    adaptive = getattr(algorithm, "adaptive_kl", None) is not None
    return Learner(
        parameters,
        algorithm.optimiser_of(parameters).init(parameters),
        statistics_of(algorithm, spec),
        jnp.int32(0),
        rewards=Running.zeros(()) if algorithm.normalize_rewards else None,
        targets=Running.zeros(()) if algorithm.value_normalization != "off" else None,
        rate=jnp.float32(1.0) if adaptive else None,
    )


def at(algorithm: Any, updates: Array) -> Any:
    """The algorithm with its scheduled numbers as they are after ``updates`` updates."""
    changes = {}
    for name, prefix in SCHEDULED.items():
        if hasattr(algorithm, name):
            schedule = Schedule(
                getattr(algorithm, f"{prefix}_schedule"),
                getattr(algorithm, f"{prefix}_warmup"),
                getattr(algorithm, f"{prefix}_decay_start"),
            )
            now = schedule.at(getattr(algorithm, name), updates, algorithm.total_updates)
            changes[name] = now
    return dataclasses.replace(algorithm, **changes)


def descent(algorithm: Any, multiples: Array | None = None) -> Descent:
    return Descent(
        algorithm.learning_rate, algorithm.max_grad_norm, algorithm.weight_decay, multiples
    )


def adam(algorithm: Any, multiples: Array | None = None) -> Adam:
    return Adam(
        descent(algorithm, multiples),
        algorithm.adam_beta1,
        algorithm.adam_beta2,
        algorithm.adam_epsilon,
    )


def design_of(algorithm: Any) -> Design:
    """The networks that the settings ask for."""
    return Design(
        hidden_sizes=algorithm.hidden_sizes,
        activation=algorithm.activation,
        shared=algorithm.trunk == "shared",
        gru_units=algorithm.gru_units,
        hidden_gain=algorithm.hidden_gain,
        policy_gain=algorithm.policy_gain,
        value_gain=algorithm.value_gain,
        initial_log_std=algorithm.initial_log_std,
        state_dependent_std=algorithm.state_dependent_std,
        squashed=algorithm.action_distribution == "tanh",
        actor_keys=algorithm.actor_keys,
        critic_keys=algorithm.critic_keys,
        critic=getattr(algorithm, "baseline", "learned") == "learned",
    )
