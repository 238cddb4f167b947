"""Runs that begin with a policy which another library trained."""

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.api import TrainedRun
from trimtab.configuration import default_configuration
from trimtab.errors import ExportError
from trimtab.export.sb3 import Layer, Sb3Policy, read_sb3
from trimtab.opening import device_plan, make_session, write_config
from trimtab.training.config import batch_size
from trimtab.training.devices import start_jax
from trimtab.training.rundir import RunFolder


def import_sb3(
    path: Path | str,
    env: str,
    *,
    normalizer: Path | str | None = None,
    run_dir: Path | str | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> TrainedRun:
    """A run with the policy of a zip file that Stable-Baselines3's PPO saved.

    ``normalizer`` is the file that its ``VecNormalize`` saved, if it had one. Nothing in the files
    is run. The policy is evaluated once; the run can be evaluated, exported and resumed as others.
    """
    found = read_sb3(Path(path).expanduser(), Path(normalizer).expanduser() if normalizer else None)
    plain = dataclasses.replace(
        default_configuration("", "ppo"), env_id=env, env_options=dict(env_options or {})
    )
    configuration = plain.with_values(found.settings, str(path)).checked()
    devices = start_jax(device_plan(configuration, env))
    session = make_session(configuration, env, devices)
    run = adopted(session.begin(), found, session.env.spec, batch_size(configuration.training))
    folder = RunFolder.create(run_dir, env, "ppo", configuration.training.seed)
    with folder.lock():
        write_config(folder, configuration, devices)
        _keep(session, folder, run)
    return TrainedRun(folder)


def _keep(session: Any, folder: RunFolder, run: Any) -> None:
    """Write the run as one that has trained until now, with an evaluation of its policy."""
    from trimtab.training.loop import evaluation_root
    from trimtab.training.saver import Saver
    from trimtab.training.session import open_ledger

    settings, done = session.settings, int(run.update)
    with contextlib.closing(session), Saver() as saver:
        ledger = open_ledger(session, folder, saver, None)
        evaluate = session.evaluator(settings.eval_episodes, not settings.eval_stochastic)
        episodes = evaluate(session.algorithm, run.learner, evaluation_root(run, done))
        ledger.evaluated(run, done, episodes)
        ledger.save(run, done)
        saver.wait()


def adopted(run: Any, found: Sb3Policy, spec: Any, batch: int) -> Any:
    """The run with the weights and statistics that were found."""
    from trimtab.nets.flat import Flat

    found = found.for_action(spec)
    learner = run.learner
    network = learner.parameters.network()
    network = dataclasses.replace(
        network,
        actor=_with_layers(network.actor, found.actor, "actor", spec),
        critic=_with_layers(network.critic, found.critic, "critic", spec),
        log_std=_log_std(network.log_std, found.log_std, spec),
    )
    updates = np.int32(found.steps // batch)
    statistics = learner.observations
    if found.normaliser is not None:
        statistics = _statistics(statistics, found, spec)
    learner = learner._replace(
        parameters=Flat.of(network), observations=statistics, updates=learner.updates + updates
    )
    return run._replace(learner=learner, update=run.update + updates)


def _with_layers(mlp: Any, layers: list[Layer], part: str, spec: Any) -> Any:
    wanted = [layer.weight.shape for layer in mlp.layers]
    given = [layer.weight.shape for layer in layers]
    if wanted != given:
        raise ExportError(
            f"The {part} in the file has weights of {given}, and {spec.id} needs {wanted}: it was "
            "trained in another environment."
        )
    made = [
        dataclasses.replace(ours, weight=_array(weight), bias=_array(bias))
        for ours, (weight, bias) in zip(mlp.layers, layers, strict=True)
    ]
    return dataclasses.replace(mlp, layers=tuple(made))


def _log_std(ours: Any, theirs: np.ndarray | None, spec: Any) -> Any:
    if (ours is None) != (theirs is None):
        raise ExportError(
            f"The policy in the file does not act in {spec.action}, as {spec.id} wants it."
        )
    return None if theirs is None else _array(theirs).reshape(ours.shape)


def _statistics(running: Any, found: Sb3Policy, spec: Any) -> Any:
    theirs = found.normaliser
    assert theirs is not None
    if theirs.mean.shape != running.mean.shape:
        raise ExportError(
            f"The normaliser is of observations of shape {theirs.mean.shape}; those of {spec.id} "
            f"have {running.mean.shape}."
        )
    return running._replace(
        count=_array(np.asarray(theirs.count)),
        mean=_array(theirs.mean),
        squares=_array(theirs.variance * theirs.count),
    )


def _array(values: np.ndarray) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(values, jnp.float32)
