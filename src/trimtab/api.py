"""trimtab from Python: ``train``, ``load``, and what they return."""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from trimtab.algos.settings import ALGORITHMS
from trimtab.configuration import Configuration, default_configuration
from trimtab.continuing import goes_on, note_how_it_goes_on, require_run
from trimtab.envs.make import find, picked
from trimtab.errors import SettingError
from trimtab.explain.report import Explanation
from trimtab.log.progress import Progress, Quiet
from trimtab.log.sinks import missing
from trimtab.log.writer import read_jsonl, read_last
from trimtab.opening import (
    device_plan,
    make_algorithm,
    make_session,
    open_session,
    recorded_devices,
    stored_configuration,
    write_config,
)
from trimtab.settings import setting_names
from trimtab.spaces import EnvSpec
from trimtab.training.checkpoint import exists, read_manifest
from trimtab.training.config import batch_size, num_updates
from trimtab.training.devices import start_jax
from trimtab.training.evaluations import of_best, while_training
from trimtab.training.rundir import RunFolder
from trimtab.training.specfile import read_spec

if TYPE_CHECKING:
    from trimtab.export.formats import Exported


@dataclasses.dataclass(frozen=True)
class JustTrained:
    """What is known of a run only in the process that trained it."""

    session: Any
    stopped_by: str | None  # the signal that ended training early, if one did
    timing: Mapping[str, float]


@final
class TrainedRun:
    """A run folder, and what can be done with the policy in it."""

    def __init__(self, folder: RunFolder, trained: "JustTrained | None" = None, env: Any = None):
        self.folder = folder
        self._env = env  # what the id in the folder stands for, where that is no name
        self.stopped_by = trained.stopped_by if trained else None
        # Seconds of compiling and of training, if just trained.
        self.timing = dict(trained.timing) if trained else {}
        self._opened = trained.session if trained else None

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One row for each update."""
        return read_jsonl(self.folder.metrics_path)

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """One row for each evaluation made while training."""
        return while_training(read_jsonl(self.folder.evaluations_path))

    @property
    def final_evaluation(self) -> dict[str, Any] | None:
        """The best policy on seeds that did not choose it; None while the run is not done."""
        return of_best(read_jsonl(self.folder.evaluations_path))

    @property
    def steps(self) -> int:
        """Environment steps done, all in all."""
        last = read_last(self.folder.metrics_path) if self.folder.metrics_path.exists() else []
        return int(last[-1]["steps"]) if last else 0

    @functools.cached_property
    def spec(self) -> EnvSpec:
        """What the environment says of itself."""
        return read_spec(self.path) or self._session.env.spec

    @functools.cached_property
    def configuration(self) -> Configuration:
        return stored_configuration(self.folder)

    @property
    def _session(self) -> Any:
        if self._opened is None:
            devices = recorded_devices(self.folder)
            self._opened = open_session(self.configuration, devices, self._env)
        return self._opened

    def learner(self, checkpoint: str = "best") -> Any:
        """The algorithm's state in a checkpoint: ``best``, ``latest``, or a folder's path."""
        from trimtab.training.session import load_run

        return load_run(self._session, self.folder, checkpoint)[0].learner

    def evaluate(
        self,
        episodes: int = 20,
        seed: int = 0,
        deterministic: bool = True,
        checkpoint: str = "best",
    ) -> dict[str, Any]:
        """Play whole episodes on seeds that training never used: mean, median, std and so on."""
        import jax

        from trimtab.keys import Purpose, stream
        from trimtab.training.evaluate import summary

        session = self._session
        root = stream(jax.random.key(seed), Purpose.EVALUATION)
        result = session.evaluator(episodes, deterministic)(
            session.algorithm, self.learner(checkpoint), root
        )
        return {
            **summary(result),
            "seed": seed,
            "deterministic": deterministic,
            "checkpoint": checkpoint,
        }

    def stored_policy(self, checkpoint: str = "best") -> Any:
        """The policy in a checkpoint; the environment is not made for it."""
        from trimtab.training.stored import StoredPolicy

        configuration, spec = self.configuration, self.spec
        start_jax(recorded_devices(self.folder))
        algorithm = make_algorithm(configuration)
        name = configuration.algorithm_name
        return StoredPolicy.load(self.folder, name, algorithm, spec, checkpoint)

    @functools.cached_property
    def _best_policy(self) -> Any:
        return self.stored_policy()

    def policy(self, obs: Any) -> np.ndarray:
        """The best policy's action for one observation, or for a batch of them.

        Actions are as the environment takes them: clipped and scaled to its bounds. A recurrent
        policy acts as at the beginning of an episode.
        """
        return self._best_policy.actions(obs)

    def export(
        self, to: str = "onnx", out: Path | str | None = None, checkpoint: str = "best"
    ) -> "Exported":
        """Write the policy to a file for use elsewhere: ``onnx``, ``safetensors`` or ``numpy``.

        The file is checked against the policy before it is written.
        """
        from trimtab.export.formats import export, file_for

        place = file_for(to, out, self.path)
        return export(self.stored_policy(checkpoint), to, place)

    def __repr__(self) -> str:
        return f"TrainedRun({str(self.path)!r})"


def train(
    env: Any,
    algorithm: Any = None,
    *,
    run_dir: Path | str | None = None,
    resume: Literal["never", "auto"] = "never",
    env_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> TrainedRun:
    """Train ``algorithm`` on ``env`` and return the run.

    ``env`` is an id, an object that satisfies ``trimtab.JaxEnv``, a callable that makes a
    ``gymnasium.Env``, such an environment, or a ``gymnasium.vector.VectorEnv``, whose lanes are
    then all there are. Without an algorithm, PPO with the environment's preset is used; with one,
    defaults apply to all that ``settings`` (the fields of ``TrainSettings``, and of the algorithm)
    leave out.

    With ``resume="auto"`` the run in ``run_dir`` is gone on with, if one has begun there: for jobs
    that may be stopped at any time and are started again as they are. Settings that contradict
    those of that run are refused; ``total_steps`` may be raised. A run that has done its steps is
    returned as it is.
    """
    if not isinstance(env, str):
        env = find(env)
        if getattr(env, "num_envs", None) is not None:
            settings = {"num_envs": env.num_envs, **settings}
    configuration = configuration_of(env, algorithm, env_options or {})
    configuration = configuration.with_values(settings, "train()").checked()
    progress = progress or Quiet()
    if goes_on(resume, run_dir):
        assert run_dir is not None
        return _gone_on(configuration, env, Path(run_dir).expanduser(), progress)
    return train_configuration(configuration, env, run_dir, progress)


def _gone_on(configuration: Configuration, env: Any, path: Path, progress: Progress) -> TrainedRun:
    require_run(path, configuration)
    made, total = None if isinstance(env, str) else env, configuration.training.total_steps
    done, planned = resume_point(path, total_steps=total)
    if done >= planned:
        return load(path, made)
    return resume(path, progress, env=made, total_steps=total)


def configuration_of(env: Any, algorithm: Any, env_options: Mapping[str, Any]) -> Configuration:
    """The configuration before any setting is given."""
    env_id = env if isinstance(env, str) else env.spec.id
    if algorithm is None:
        spec = None if isinstance(env, str) else env.spec
        return default_configuration(env_id, "ppo", env_options, spec)
    name = algorithm_name(algorithm)
    kind = ALGORITHMS[name]
    values = {key: getattr(algorithm, key) for key in setting_names(kind())}
    plain = default_configuration("", name)
    return dataclasses.replace(
        plain, env_id=env_id, env_options=dict(env_options), algorithm=kind(**values)
    )


def algorithm_name(algorithm: Any) -> str:
    for name, kind in ALGORITHMS.items():
        if isinstance(algorithm, kind):
            return name
    raise SettingError(
        f"algorithm = {algorithm!r} is not one of trimtab's: expected an instance of "
        f"{', '.join(name.upper() for name in ALGORITHMS)}, such as trimtab.PPO()."
    )


def train_configuration(
    configuration: Configuration,
    env: Any,
    run_dir: Path | str | None,
    progress: Progress,
    grace: float | None = None,
) -> TrainedRun:
    """Train a checked configuration in a new run folder; of ``grace`` see ``StopRequest``."""
    # What costs little to find wrong comes first: before JAX starts, and before training.
    for tracker in configuration.training.track:
        if sentence := missing(tracker):
            raise SettingError(sentence)
    wanted = device_plan(configuration, env)
    existed = run_dir is not None and Path(run_dir).expanduser().exists()
    folder = RunFolder.create(
        run_dir, configuration.env_id, configuration.algorithm_name, configuration.training.seed
    )
    try:
        devices = start_jax(wanted)
        session, chosen = make_session(configuration, env, devices).settled()
    except BaseException:
        if not existed:
            with contextlib.suppress(OSError):  # somebody has put something there
                folder.path.rmdir()
        raise
    configuration = dataclasses.replace(configuration, training=session.settings)
    announce(configuration, env, progress)
    tell_plan(configuration, session.env.spec, progress)
    if chosen:
        progress.say(f"vectorization: {configuration.training.vectorization} ({chosen['why']})")
    with folder.lock():
        extra = {"vectorization": dict(chosen)} if chosen else {}
        write_config(folder, configuration, devices, extra)
        return _run(session, folder, progress, grace=grace)


def announce(configuration: Configuration, env: Any, progress: Progress) -> None:
    """Say which environment a bare name stands for, and which preset was taken."""
    sentences = (
        picked(env) if isinstance(env, str) else "",
        configuration.preset.words(configuration.env_id, configuration.algorithm_name),
    )
    for sentence in filter(None, sentences):
        progress.say(sentence)


def tell_plan(
    configuration: Configuration, spec: EnvSpec, progress: Progress, runs: int = 1
) -> None:
    """Tell whoever watches what the configuration will do."""
    explanation = Explanation.of(configuration, spec, runs=runs)
    progress.planned(explanation.headlines(), explanation.to_json())


def resume(
    path: Path | str,
    progress: Progress | None = None,
    *,
    env: Any = None,
    strict: bool = False,
    grace: float | None = None,
    stop_after: int | None = None,
    **settings: Any,
) -> TrainedRun:
    """Go on with a run from its latest checkpoint, as if it had never stopped.

    If that one is damaged, the run goes on from the one before, and says so; with ``strict`` it
    does not. ``settings`` may raise ``total_steps``. ``env`` is needed where the run was given an
    object in place of an id. ``stop_after`` so many updates, all in all, training ends early.
    """
    folder, progress = RunFolder.open(path), progress or Quiet()
    with folder.lock():
        before = stored_configuration(folder)
        configuration = before.with_values(settings, "resume()").checked()
        devices = recorded_devices(folder)
        session = open_session(configuration, devices, env)
        note_how_it_goes_on(folder, before, configuration, devices, progress)
        manner = {"strict": strict, "grace": grace, "stop_after": stop_after}
        return _run(session, folder, progress, resumed=True, **manner)


def resume_point(path: Path | str, **settings: Any) -> tuple[int, int]:
    """The steps that a run has saved, and those that it would have done when it ends."""
    folder = RunFolder.open(path)
    training = stored_configuration(folder).with_values(settings, "resume()").checked().training
    latest = folder.checkpoint_path("latest")
    done = int(read_manifest(latest)["steps"]) if exists(latest) else 0
    return done, num_updates(training) * batch_size(training)


def load(path: Path | str, env: Any = None) -> TrainedRun:
    """A run from its folder; ``env`` is needed where it was given an object in place of an id."""
    return TrainedRun(RunFolder.open(path), env=env)


def _run(session: Any, folder: RunFolder, progress: Progress, **manner: Any) -> TrainedRun:
    from trimtab.training.session import Manner, run_session

    outcome, compile_seconds = run_session(session, folder, progress, Manner(**manner))
    timing = {"compile": compile_seconds, "train": outcome.seconds}
    return TrainedRun(folder, JustTrained(session, outcome.stopped_by, timing))
