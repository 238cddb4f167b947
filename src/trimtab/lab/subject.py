"""What the lab measures: an environment, an algorithm, and one or more states of its learner."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.configuration import Configuration
from trimtab.errors import CheckpointError, SettingError, did_you_mean
from trimtab.lab.plan import Split
from trimtab.opening import make_session, open_session, recorded_devices, stored_configuration
from trimtab.training.checkpoint import read_manifest
from trimtab.training.devices import DevicePlan, start_jax
from trimtab.training.rundir import RunFolder

# The lab's arithmetic is on one device, with all its threads.
ONE_DEVICE = DevicePlan(devices=1, single_thread=False)


@dataclasses.dataclass(frozen=True)
class Moment:
    """A learner at some time of its training."""

    name: str
    update: int
    steps: int
    learner: Any


@dataclasses.dataclass(frozen=True)
class Subject:
    """Whose gradients are measured."""

    env: Any
    algorithm: Any
    configuration: Configuration
    moments: tuple[Moment, ...]
    source: str  # the run's folder, or the environment's id

    @property
    def is_compiled(self) -> bool:
        """Whether the environment is inside of compiled programs."""
        return hasattr(self.env, "step")

    @property
    def own_split(self) -> Split:
        training = self.configuration.training
        return Split(training.num_envs, training.num_steps)


def is_run(target: str) -> bool:
    """Whether the text names a run's folder, and not an environment."""
    return (Path(target).expanduser() / "config.toml").is_file()


def fresh_subject(configuration: Configuration) -> Subject:
    """A policy that nothing has trained."""
    session = make_session(configuration, configuration.env_id, start_jax(ONE_DEVICE))
    moments = (Moment("fresh", 0, 0, session.begin().learner),)
    return Subject(session.env, session.algorithm, configuration, moments, configuration.env_id)


def run_subject(path: str, checkpoints: str) -> Subject:
    """The policy of a run, at the checkpoints that were asked for."""
    from trimtab.training.session import load_run

    folder = RunFolder.open(path)
    configuration = stored_configuration(folder)
    names = chosen_checkpoints(folder, checkpoints)
    recorded_devices(folder)  # refuses a damaged configuration before JAX starts
    session = open_session(configuration, ONE_DEVICE)
    moments = {}
    for name in names:
        run, notes = load_run(session, folder, name)
        # ``best`` is often the same as another: one is enough.
        moments.setdefault(int(notes["update"]), (name, notes, run.learner))
    ordered = tuple(
        Moment(name, update, int(notes["steps"]), learner)
        for update, (name, notes, learner) in sorted(moments.items())
    )
    return Subject(session.env, session.algorithm, configuration, ordered, str(folder.path))


def chosen_checkpoints(folder: RunFolder, wanted: str) -> list[str]:
    """The names of the checkpoints: ``all``, or those listed."""
    home = folder.checkpoints_path
    known: Mapping[str, Any] = {
        path.name: read_manifest(path)
        for path in sorted(home.glob("*"))
        if path.is_dir() and not path.name.startswith(".") and path.suffix != ".previous"
    }
    if not known:
        raise CheckpointError(
            f"The run {folder.path} has no checkpoint yet: it was stopped before it saved one."
        )
    if wanted == "all":
        return list(known)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if not names:
        raise SettingError(
            f"--checkpoints names none: expected all, or some of {', '.join(known)}."
        )
    for name in names:
        if name not in known:
            raise SettingError(
                f"--checkpoints {name}: the run has no checkpoint of that name."
                f"{did_you_mean(name, known)} It has {', '.join(known)}."
            )
    return names
