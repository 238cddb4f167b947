"""What is known of a configuration once its environment has been looked at: spec and costs.

The environment is made and the algorithm is traced; nothing is compiled.
"""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from trimtab.api import device_plan, make_algorithm, recorded_devices, stored_configuration
from trimtab.configuration import Configuration
from trimtab.errors import TooLargeError
from trimtab.spaces import EnvSpec
from trimtab.training.config import nearest_divisors, shuffled_units
from trimtab.training.devices import start_jax
from trimtab.training.groupdir import GroupFolder, is_group
from trimtab.training.rundir import RunFolder
from trimtab.training.specfile import read_spec


@dataclasses.dataclass(frozen=True)
class Examined:
    """Of the environment as a run sees it."""

    spec: EnvSpec | None = None
    costs: Any = None


def examined(configuration: Configuration) -> Examined:
    """Of a configuration that is to be trained; what `trimtab train` would refuse is refused.

    But for two refusals that an explanation has more to say of: minibatches that do not divide the
    rollout, and too little memory.
    """
    divisible = with_divisible(configuration)
    training, algorithm = divisible.training, make_algorithm(divisible)
    devices = start_jax(device_plan(divisible, divisible.env_id))

    from trimtab.explain.costs import Costs
    from trimtab.training.session import assembled

    session = assembled(divisible.env_id, algorithm, training, devices, configuration.env_options)
    with contextlib.suppress(TooLargeError):  # there is a rule for it, which says more
        session.check()
    spec = session.env.spec
    costs = Costs.of(session.algorithm, spec, training.num_envs, training.num_steps)
    return Examined(spec, costs)


def of_run(path: Path) -> tuple[Configuration, Examined, int]:
    """A run's configuration, what it recorded of its environment, and how many runs are alike."""
    runs = 1
    if is_group(path):
        members = GroupFolder.open(path).read()["runs"]
        path, runs = path / members[0]["folder"], len(members)
    folder = RunFolder.open(path)
    configuration = stored_configuration(folder)
    spec = read_spec(path)
    if spec is None:
        return configuration, Examined(), runs
    start_jax(recorded_devices(folder))

    from trimtab.explain.costs import Costs
    from trimtab.training.session import told_its_length

    training = configuration.training
    algorithm = told_its_length(make_algorithm(configuration), training)
    costs = Costs.of(algorithm, spec, training.num_envs, training.num_steps)
    return configuration, Examined(spec, costs), runs


def with_divisible(configuration: Configuration) -> Configuration:
    """With the nearest number of minibatches that divides; it alters neither memory nor work."""
    training, algorithm = configuration.training, configuration.algorithm
    units = shuffled_units(training, algorithm.gru_units is not None)
    if units % algorithm.minibatches == 0:
        return configuration
    near = min(nearest_divisors(units, algorithm.minibatches), default=1)
    return dataclasses.replace(
        configuration, algorithm=dataclasses.replace(algorithm, minibatches=near)
    )
