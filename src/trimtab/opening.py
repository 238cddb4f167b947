"""Opens a session that can train: of a new configuration, or of the one in a run's folder."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from trimtab.configuration import Configuration, default_configuration
from trimtab.envs.make import entry_for, is_compiled
from trimtab.errors import RunFolderError, UnknownEnvironmentError
from trimtab.settings import setting_names
from trimtab.training.config import batch_size, shuffled_units
from trimtab.training.devices import DevicePlan, host_plan, plan, start_jax
from trimtab.training.machine import machine_facts
from trimtab.training.rundir import RunFolder


def device_plan(configuration: Configuration, env: Any) -> DevicePlan:
    """The devices that suit the configuration, on an environment or the id of one."""
    training, algorithm = configuration.training, configuration.algorithm
    weights = 2 * sum(a * b for a, b in itertools.pairwise(algorithm.hidden_sizes))
    if not is_compiled(env):
        minibatch = batch_size(training) // algorithm.minibatches
        first_come = training.vectorization == "async"
        return host_plan(training.devices, minibatch, weights, first_come)
    batch, recurrent = batch_size(training), algorithm.gru_units is not None
    units = shuffled_units(training, recurrent)
    return plan(training.devices, training.num_envs, batch, units, algorithm.minibatches, weights)


def make_algorithm(configuration: Configuration) -> Any:
    from trimtab.algos.registry import algorithm_class

    kind, settings = algorithm_class(configuration.algorithm_name), configuration.algorithm
    return kind(**{key: getattr(settings, key) for key in setting_names(settings)})


def make_session(configuration: Configuration, env: Any, devices: DevicePlan) -> Any:
    from trimtab.training.session import prepare

    algorithm = make_algorithm(configuration)
    return prepare(env, algorithm, configuration.training, devices, configuration.env_options)


def recorded_devices(folder: RunFolder) -> DevicePlan:
    """The devices that a run was started on."""
    recorded = folder.read_config()["devices"]
    expected = {field.name for field in dataclasses.fields(DevicePlan)}
    if set(recorded) != expected or not isinstance(recorded["devices"], int):
        raise RunFolderError(
            f"{folder.config_path}: expected a table [devices] with {', '.join(sorted(expected))}. "
            "Restore the file from a copy, or start a new run."
        )
    return DevicePlan(**recorded)


def open_session(configuration: Configuration, devices: DevicePlan, env: Any = None) -> Any:
    """The session of a stored run, on the devices that it was recorded with where there are any."""
    if env is not None:
        return make_session(configuration, env, start_jax(devices))
    try:
        entry_for(configuration.env_id)
    except UnknownEnvironmentError as error:
        raise UnknownEnvironmentError(
            f"{error} If a package of yours registers it: --import PACKAGE. If the run was given "
            "an object: trimtab.load(path, env=...) takes it."
        ) from None
    return make_session(configuration, configuration.env_id, start_jax(devices))


def write_config(
    folder: RunFolder,
    configuration: Configuration,
    devices: DevicePlan,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write ``config.toml``; ``extra`` is what else there is to say of the run."""
    reproducible = None if configuration.training.reproducible else False
    folder.write_config(
        training=dataclasses.asdict(configuration.training),
        algorithm=dataclasses.asdict(configuration.algorithm),
        environment={"id": configuration.env_id, "options": dict(configuration.env_options)},
        algorithm_name=configuration.algorithm_name,
        devices=dataclasses.asdict(devices),
        machine=machine_facts(),
        extra={**(extra or {}), "reproducible": reproducible},
    )


def stored_configuration(folder: RunFolder) -> Configuration:
    """The configuration in a run's folder."""
    stored = folder.read_config()
    name = stored["algorithm_name"]
    environment = stored["environment"]
    plain = default_configuration("", name, environment.get("options"))
    whole = {**stored["training"], **stored["algorithm"]}
    return dataclasses.replace(
        plain.with_values(whole, str(folder.config_path)), env_id=environment["id"]
    ).checked()
