"""``trimtab bench-env``."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trimtab.cli.environments import ENV, ENV_OPTION, IMPORT, import_given
from trimtab.cli.flags import Command, Flag, parse
from trimtab.errors import SettingError, TrimtabError
from trimtab.settings import Bounds

if TYPE_CHECKING:
    from trimtab.collect.modes import Measured
    from trimtab.envs.sources import HostSource

BENCH = Command(
    "bench-env",
    "Measure how fast a host environment is in each way of stepping it, under random actions, with "
    "Gymnasium's own vector environments beside them.",
    [
        ENV,
        Flag(
            "num_envs", int, 8, "environments stepped in parallel [at least 1]", Bounds(at_least=1)
        ),
        Flag(
            "num_workers",
            int,
            0,
            "worker processes; 0 measures one for each core, and one for each lane [at least 0]",
            Bounds(at_least=0),
        ),
        ENV_OPTION,
        IMPORT,
        Flag("json", bool, False, "for programs: one JSON object a line", pair=False),
    ],
)


def bench_env_command(arguments: Sequence[str]) -> int:
    """``trimtab bench-env ENV``"""
    values = parse(BENCH, arguments)
    import_given(values["imports"])
    lanes, workers = values["num_envs"], values["num_workers"]
    if workers > lanes:
        raise SettingError(
            f"--num-workers {workers} is not valid: expected at most --num-envs, {lanes}."
        )

    from trimtab.cli.tables import print_table
    from trimtab.cli.words import json_line
    from trimtab.envs.make import find
    from trimtab.envs.sources import HostSource

    source = find(values["env"], **dict(values["env_option"]))
    if not isinstance(source, HostSource):
        raise SettingError(
            f"{source.spec.id} is in the compiled program, where there is one way to step it. To "
            f"measure Gymnasium's: trimtab bench-env gymnasium:{source.spec.id}"
        )
    measured, missing = _measured(source, values["env"], lanes, workers)
    for name, why in missing:
        print(f"{name} could not be measured: {why}", file=sys.stderr)
    if values["json"]:
        for one in measured:
            print(json_line(vars(one)))
        return 0
    best = max(one.steps_per_second for one in measured)
    print(f"{source.spec.id}, {lanes} lanes, random actions, no policy\n")
    print_table(
        ("mode", ">workers", ">steps/s", ">of the best", ">a step of all lanes", ">start"),
        (_row(one, lanes, best) for one in measured),
    )
    return 0


def _row(one: "Measured", lanes: int, best: float) -> list[str]:
    from trimtab.log.progress import duration_words

    return [
        one.mode,
        str(one.num_workers or "–"),
        f"{one.steps_per_second:,.0f}",
        f"{one.steps_per_second / best:.0%}",
        f"{1e6 * lanes / one.steps_per_second:,.0f} µs",
        duration_words(one.start_seconds),
    ]


def _measured(
    source: "HostSource", env_id: str, lanes: int, workers: int
) -> tuple[list["Measured"], list[tuple[str, str]]]:
    """Every mode that there is, and those that failed, with the reason."""
    from trimtab.collect.modes import measure, measure_mode
    from trimtab.collect.settings import HostSettings, workers_for
    from trimtab.envs.peers import gymnasium_steppers

    plain, found, missing = HostSettings(), [], []

    def add(name: str, call: Any) -> None:
        try:
            found.append(call())
        except (TrimtabError, RuntimeError, OSError) as error:
            missing.append((name, str(error).splitlines()[0]))

    if source.make_env is None:
        mode = "envpool" if source.make_host is not None else "in-process"
        return [measure_mode(source, source.num_envs or lanes, plain, mode)], []
    alone = measure_mode(source, lanes, plain, "in-process")  # what is wrong with it shows here
    found.append(alone)
    for count in {workers} if workers else dict.fromkeys((workers_for(plain, lanes), lanes)):
        add("workers", lambda c=count: measure_mode(source, lanes, plain, "workers", c))
    for name, stepper in gymnasium_steppers(source.make_env, lanes):
        add(name, lambda n=name, s=stepper: measure(n, lanes, s))
    pool = _pool(env_id)
    if pool is not None:
        add("envpool", lambda: measure_mode(pool, lanes, plain, "envpool"))
    return found, missing


def _pool(env_id: str) -> "HostSource | None":
    """envpool's environment of the same name, where it is installed and has it."""
    from trimtab.envs import envpool

    name = env_id.rpartition(":")[2]
    if not envpool.is_installed() or name not in envpool.environment_ids():
        return None
    return envpool.source_of_pool(name, {})
