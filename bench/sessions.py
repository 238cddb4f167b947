"""How the measurements reach into trimtab: the one place to mend when its insides change.

Importing this starts nothing; ``opened`` starts JAX on the devices that suit the configuration.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


def configured(
    env_id: str,
    settings: Mapping[str, Any] | None = None,
    algorithm: str = "ppo",
    general: str = "",
) -> Any:
    """An algorithm on an environment: its preset, or a general one, with ``settings`` over it."""
    import dataclasses

    from trimtab.configuration import default_configuration
    from trimtab.training.presets import preset_values

    if general:
        plain = dataclasses.replace(default_configuration("", algorithm), env_id=env_id)
        plain = plain.with_values(preset_values(general, algorithm) or {}, general)
    else:
        plain = default_configuration(env_id, algorithm)
    return plain.with_values(settings or {}, "bench").checked()


def opened(configuration: Any) -> Any:
    """The session of a configuration, on the devices that trimtab chooses for it."""
    from trimtab.opening import device_plan, make_session
    from trimtab.training.devices import start_jax

    devices = start_jax(device_plan(configuration, configuration.env_id))
    return make_session(configuration, configuration.env_id, devices)


def compiled_step(session: Any, capacity: int) -> Any:
    """The session's step, with room for ``capacity`` updates in a call."""
    from trimtab.training.step import lanes_mesh, make_step

    mesh = lanes_mesh(session.devices.devices)
    return make_step(session.env, session.settings.num_steps, capacity, mesh)


def advancing(session: Any, timed: Any = None) -> tuple[Any, int]:
    """(advance, steps): ``advance()`` is one call of the session's step, of that many steps.

    ``timed(part, call)`` may wrap the parts of a step on host environments.
    """
    import jax
    import numpy as np

    run, programs = session.compile()
    updates = session.schedule.capacity
    if timed is not None:
        _wrap_parts(programs.step, timed)

    def advance() -> None:
        nonlocal run
        run, _ = programs.step(session.algorithm, run, np.int32(updates))
        jax.block_until_ready(run)

    return advance, updates * session.schedule.batch


def _wrap_parts(step: Any, timed: Any) -> None:
    """Wrap what a ``HostStep`` over environments in this process calls."""
    import jax

    collector, learn = step._collector, step._learn
    env, acting = collector._env, collector._lanes._programs
    act, prepare = acting._act, acting.prepare
    step._learn = timed("learning", lambda *given: jax.block_until_ready(learn(*given)))
    acting._act = timed("acting", lambda *given: jax.block_until_ready(act(*given)))
    acting.prepare = timed("noise", lambda *given: jax.block_until_ready(prepare(*given)))
    env.step = timed("border", env.step)
    for lane in env._group._envs:
        lane.step, lane.reset = timed("simulator", lane.step), timed("simulator", lane.reset)


def step_without_metrics(session: Any, capacity: int) -> Any:
    """The same, but that no metric leaves it: XLA then computes none of them."""
    from trimtab.training import step

    def silent(*arguments: Any) -> Any:
        run, metrics = whole(*arguments)
        return run, {step.FAULT_METRIC: metrics[step.FAULT_METRIC]}

    whole, step.one_update = step.one_update, silent
    try:
        mesh = step.lanes_mesh(session.devices.devices)
        made: Any = step.make_step(session.env, session.settings.num_steps, capacity, mesh)
        run = session.begin()
        import numpy as np

        return made.lower(session.algorithm, run, np.int32(1)).compile()
    finally:
        step.one_update = whole


@contextlib.contextmanager
def recorder(session: Any, folder: Any) -> Iterator[Any]:
    """``record(run, done, count, metrics)``, which writes a call's rows as training does."""
    import numpy as np

    from trimtab.training.rundir import RunFolder
    from trimtab.training.saver import Saver
    from trimtab.training.session import open_ledger
    from trimtab.training.telemetry import Telemetry

    place = RunFolder.create(folder / "run", session.env.spec.id, "ppo", session.settings.seed)
    telemetry = Telemetry()
    with Saver() as saver:
        ledger = open_ledger(session, place, saver, None)

        def record(run: Any, done: int, count: int, metrics: Any) -> None:
            columns = {name: np.asarray(values)[:count] for name, values in metrics.items()}
            ledger.record(run, done, columns, telemetry.of_call(session.schedule.batch * count))

        yield record


def beginner(session: Any) -> Any:
    """``start(seed) -> run``, before the first update and where the compiled step expects it."""
    import jax

    from trimtab.training.step import begin

    first = jax.jit(
        lambda algorithm, root: begin(
            algorithm, session.env, session.settings.num_envs, root, session.staggered
        )
    )
    return lambda seed: session.place(first(session.algorithm, jax.random.key(seed)))


def evaluator(session: Any, episodes: int) -> Any:
    """``evaluate(run) -> returns`` of that many episodes, deterministic, as in training."""
    import numpy as np

    from trimtab.keys import Purpose, stream
    from trimtab.training.evaluate import make_evaluator
    from trimtab.training.loop import on_one_device

    play = make_evaluator(session.env, episodes, deterministic=True)

    def evaluate(run: Any) -> Any:
        root = stream(on_one_device(run.root), Purpose.EVALUATION, int(run.update))
        return np.asarray(play(session.algorithm, on_one_device(run.learner), root).returns)

    return evaluate


def many_seeds(configuration: Any, seeds: int, updates: int, devices: int) -> tuple[Any, Any]:
    """(advance, runs): ``advance(runs) -> (runs, metrics)`` makes ``updates`` updates of each seed.

    The algorithm is mapped over seeds as it is, and the seeds are shared over devices.
    """
    import jax
    import numpy as np

    from trimtab.algos.ppo import PPO
    from trimtab.envs.make import make
    from trimtab.settings import setting_names
    from trimtab.training.config import num_updates
    from trimtab.training.seeds import begin_seeds, make_seeds_step, seeds_mesh, stacked
    from trimtab.training.session import as_arrays

    training, settings = configuration.training, configuration.algorithm
    values = {name: getattr(settings, name) for name in setting_names(settings)}
    algorithm = as_arrays(PPO(**values, total_updates=float(num_updates(training))))
    env = make(configuration.env_id)
    algorithms = stacked([algorithm] * seeds)
    roots = np.arange(seeds, dtype=np.uint32)
    start = jax.jit(lambda: begin_seeds(algorithms, env, training.num_envs, roots))
    step = make_seeds_step(env, training.num_steps, updates, seeds_mesh(devices))
    return (lambda runs: step(algorithms, runs, np.int32(updates))), start()


def worst_value_error(run: Any, checkpoint: str) -> float:
    """How far the critic of a probe's trained run is from the exact value, where it is worst."""
    import numpy as np

    from trimtab.envs.make import make

    configuration = run.configuration
    env, gamma = make(configuration.env_id), configuration.algorithm.gamma
    network = run.learner(checkpoint).parameters.network()
    seen = {"Probe1-v0": [0.0], "Probe3-v0": [0.0, 1.0], "Probe4-v0": [0.0]}
    signals = seen.get(configuration.env_id, [-1.0, 1.0])
    return max(
        abs(float(network.value(np.float32([signal]))) - env.value(signal, gamma))
        for signal in signals
    )


class AlreadyCompiled:
    """A session whose programs are at hand, so that a run of it is timed without compiling."""

    def __init__(self, session: Any, start: Any, programs: Any):
        self._session = session
        self._compiled = start, programs

    def compile(self) -> tuple[Any, Any]:
        return self._compiled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def whole_run(session: Any, start: Any, programs: Any, folder: Any, progress: Any) -> float:
    """Seconds of a run with all that a run folder gets, from its first byte to its last."""
    import time

    from trimtab.training.rundir import RunFolder
    from trimtab.training.session import Manner, run_session

    place = RunFolder.create(folder / "run", session.env.spec.id, "ppo", session.settings.seed)
    compiled: Any = AlreadyCompiled(session, start, programs)
    begun = time.perf_counter()
    run_session(compiled, place, progress, Manner())
    return time.perf_counter() - begun
