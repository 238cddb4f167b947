"""How fast fused PPO is: trimtab beside rejax, and beside the most that the networks allow.

CartPole-v1, separate 64×64 tanh actor and critic, 4 epochs of 4 minibatches, and all else equal.
trimtab runs through the seam: the session's own compiled step over gymnax's environment, with
truncation, episode statistics and metrics in place, on the devices that ``auto`` chooses.

    × rejax          environment steps per second of trimtab over those of rejax
    of the ceiling   those of trimtab over what ceiling.py reaches: forward, backward and a plain
                     gradient step of the two networks, in as many processes as trimtab uses
                     devices, each pinned to a core and at a device's share of a minibatch
    many seeds       8 and 32 runs of 4×128 at once, the steps of all of them, over rejax's 4×128

Speeds flip and drift from process to process and from minute to minute, so every figure comes from
a process of its own, and each round runs trimtab, rejax and the ceiling one after the other. A
round's ratio is between the medians of that round; reported is the median over rounds, with the
range. Compiling and a warm-up call are never timed, nor is rejax's evaluation.

    python bench/fused_ppo.py                 the table (needs `make peers`)
    python bench/fused_ppo.py --quick         one short round
    python bench/fused_ppo.py --sb3           also Stable-Baselines3, with the Zoo's settings
    python bench/fused_ppo.py --rows 4x128    some rows only
"""

import dataclasses
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import harness
import sessions
from host_ppo import LANES, TASKS

EPOCHS, MINIBATCHES = 4, 4
HIDDEN = (64, 64)
REPETITIONS = 7
STEPS = 400_000  # in a repetition: about a second
QUICK_REPETITIONS, QUICK_STEPS = 3, 60_000


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table, with what it is held to."""

    shape: str
    against_rejax: float
    of_ceiling: float | None
    seeds: int = 1

    @property
    def name(self) -> str:
        return self.shape if self.seeds == 1 else f"{self.seeds} seeds of {self.shape}"

    @property
    def key(self) -> str:
        return self.shape if self.seeds == 1 else f"{self.seeds}seeds"

    @property
    def batch(self) -> int:
        num_envs, num_steps = sizes(self.shape)
        return num_envs * num_steps


ROWS = (
    Row("2048x16", 2.2, 0.65),
    Row("64x128", 2.0, 0.58),
    Row("4x128", 1.5, 0.62),
    Row("4x128", 3.0, None, seeds=8),
    Row("4x128", 3.0, None, seeds=32),
)
ZOO = TASKS["CartPole-v1"]  # as host_ppo.py gives them to all libraries
SB3_SHAPE = f"{LANES}x{ZOO.num_steps}"


def sizes(shape: str) -> tuple[int, int]:
    num_envs, num_steps = shape.split("x")
    return int(num_envs), int(num_steps)


# Workers: each of these runs in a process of its own.


def configuration(shape: str, **changes: Any) -> Any:
    """CartPole-v1 with the settings that rejax is given too."""
    num_envs, num_steps = sizes(shape)
    settings = {
        "num_envs": num_envs,
        "num_steps": num_steps,
        "total_steps": 100_000_000,
        "epochs": EPOCHS,
        "minibatches": MINIBATCHES,
        "hidden_sizes": HIDDEN,
        "activation": "tanh",
        "learning_rate": 2.5e-3,
        "learning_rate_schedule": "constant",
        "max_grad_norm": 0.5,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_range": 0.2,
        "entropy_coefficient": 0.01,
        "value_coefficient": 0.5,
    }
    return sessions.configured("CartPole-v1", {**settings, **changes})


def measure_single(shape: str, steps: int, repetitions: int, **changes: Any) -> None:
    """One run, as the training loop runs it: call upon call of the session's compiled step."""
    session = sessions.opened(configuration(shape, **changes))

    import jax
    import numpy as np

    run, programs = session.compile()
    capacity = session.schedule.capacity
    calls = max(1, steps // (session.schedule.batch * capacity))

    def repeat() -> None:
        nonlocal run
        for _ in range(calls):
            run, _ = programs.step(session.algorithm, run, np.int32(capacity))
        jax.block_until_ready(run)

    repeat()
    harness.wait_for_go()
    found = harness.rates(repeat, calls * capacity * session.schedule.batch, repetitions)
    harness.answer(
        rate=statistics.median(found), rates=found, **dataclasses.asdict(session.devices)
    )


def measure_seeds(shape: str, seeds: int, steps: int, repetitions: int) -> None:
    """Many runs at once, shared over one device for each core that divides them."""
    from trimtab.training.devices import DevicePlan, start_jax

    wanted = max(n for n in range(1, harness.available_cores() + 1) if seeds % n == 0)
    devices = start_jax(DevicePlan(wanted, single_thread=False)).devices

    import jax

    whole = configuration(shape)
    updates = max(1, steps // (whole.training.num_envs * whole.training.num_steps * seeds))
    advance, runs = sessions.many_seeds(whole, seeds, updates, devices)

    def repeat() -> None:
        nonlocal runs
        runs, metrics = advance(runs)
        jax.block_until_ready((runs, metrics))

    repeat()
    harness.wait_for_go()
    steps_of_all = updates * whole.training.num_envs * whole.training.num_steps * seeds
    found = harness.rates(repeat, steps_of_all, repetitions)
    harness.answer(rate=statistics.median(found), rates=found, devices=devices)


def work(parts: list[str]) -> None:
    """``shape seeds steps repetitions``, as a worker."""
    shape, seeds, steps, repetitions = parts[0], *map(int, parts[1:])
    if shape == SB3_SHAPE:
        measure_single(
            shape,
            steps,
            repetitions,
            epochs=ZOO.epochs,
            minibatches=1,
            gae_lambda=ZOO.gae_lambda,
            gamma=ZOO.gamma,
            learning_rate=ZOO.learning_rate,
            learning_rate_schedule="linear",
            clip_range_schedule="linear",
            entropy_coefficient=0.0,
        )
    elif seeds == 1:
        measure_single(shape, steps, repetitions)
    else:
        measure_seeds(shape, seeds, steps, repetitions)


# Rounds


class Rounds:
    """Runs workers and remembers what rejax reached in each round."""

    def __init__(self, quick: bool, verbose: bool = True):
        self.steps = QUICK_STEPS if quick else STEPS
        self.repetitions = QUICK_REPETITIONS if quick else REPETITIONS
        self.peers = harness.peers_python()
        self.environment = harness.environment_for_workers(
            NPROC=None, XLA_FLAGS=None, TRIMTAB_CACHE="off", JAX_COMPILATION_CACHE_DIR=None
        )
        self.verbose = verbose

    def ours(self, shape: str, seeds: int = 1) -> dict[str, Any]:
        command = [sys.executable, __file__, "--work", shape, seeds, self.steps, self.repetitions]
        return self._measured(f"trimtab {shape} × {seeds}", [command])[0]

    def rejax(self, shape: str) -> dict[str, Any]:
        worker = harness.PEER_WORKERS / "rejax_ppo.py"
        command = [self.peers, worker, shape, self.steps, self.repetitions]
        return self._measured(f"rejax {shape}", [command])[0]

    def sb3(self) -> dict[str, Any]:
        worker = harness.PEER_WORKERS / "sb3_ppo.py"
        given = json.dumps(dataclasses.asdict(ZOO))
        command = [self.peers, worker, "sb3", given, self.steps // 20, 3]
        return self._measured("stable-baselines3", [command])[0]

    def ceiling(self, batch: int, devices: int) -> float:
        """Environment steps per second that the networks alone would allow."""
        worker = Path(__file__).with_name("ceiling.py")
        share = batch // MINIBATCHES // devices
        samples = self.steps * EPOCHS // devices
        commands = [
            [sys.executable, worker, share, core, self.repetitions, samples]
            for core in range(devices)
        ]
        found = self._measured(f"ceiling, samples, {devices} × {share}", commands)
        return sum(one["rate"] for one in found) / EPOCHS

    def _measured(self, name: str, commands: list[list[Any]]) -> list[dict[str, Any]]:
        found = harness.measured_together(commands, self.environment)
        if self.verbose:
            total = sum(one["rate"] for one in found)
            print(f"  {name}: {harness.rate_words(total)} a second", file=sys.stderr, flush=True)
        return found


def measure_row(row: Row, rounds: Rounds, number: int) -> dict[str, Any]:
    """All rounds of one row."""
    measured = []
    for _ in range(number):
        ours, rejax = rounds.ours(row.shape, row.seeds), rounds.rejax(row.shape)
        one = {"ours": ours["rate"], "rejax": rejax["rate"], "devices": ours["devices"]}
        if row.of_ceiling is not None:
            one["ceiling"] = rounds.ceiling(row.batch, ours["devices"])
        measured.append(one)
    figures: dict[str, Any] = {
        "row": row.name,
        "rounds": measured,
        "against_rejax": [one["ours"] / one["rejax"] for one in measured],
        "target_against_rejax": row.against_rejax,
    }
    if row.of_ceiling is not None:
        figures["of_ceiling"] = [one["ours"] / one["ceiling"] for one in measured]
        figures["target_of_ceiling"] = row.of_ceiling
    return figures


def measure_sb3(rounds: Rounds, number: int) -> dict[str, Any]:
    measured = [
        {"ours": rounds.ours(SB3_SHAPE)["rate"], "sb3": rounds.sb3()["rate"]} for _ in range(number)
    ]
    ratios = [one["ours"] / one["sb3"] for one in measured]
    return {"row": SB3_SHAPE, "rounds": measured, "against_sb3": ratios}


def described(figures: dict[str, Any]) -> list[str]:
    """One line of the table that is printed."""

    def middle(name: str) -> str:
        return harness.rate_words(statistics.median(one[name] for one in figures["rounds"]))

    against, target = figures["against_rejax"], figures["target_against_rejax"]
    reached = statistics.median(against) >= target
    cells = [
        figures["row"].replace("x", "×"),
        str(figures["rounds"][0]["devices"]),
        middle("ours"),
        middle("rejax"),
        harness.ratio_words(against),
        f"≥ {target:.1f}",
    ]
    if "of_ceiling" in figures:
        shares, least = figures["of_ceiling"], figures["target_of_ceiling"]
        reached = reached and statistics.median(shares) >= least
        cells += [middle("ceiling"), harness.percent_words(shares), f"≥ {100 * least:.0f}%"]
    else:
        cells += ["", "", ""]
    return [*cells, harness.verdict(reached)]


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2:])
        return
    parser = harness.arguments(__doc__)
    parser.add_argument("--rounds", type=int, metavar="R", help="rounds of each row (3; quick: 1)")
    keys = [row.key for row in ROWS]
    parser.add_argument(
        "--rows", nargs="+", choices=keys, default=keys, metavar="ROW", help=f"of {keys}"
    )
    parser.add_argument("--sb3", action="store_true", help="also Stable-Baselines3 at 8×32")
    options = parser.parse_args()
    number = options.rounds or (1 if options.quick else 3)
    rounds = Rounds(options.quick)
    print(f"Fused PPO on CartPole-v1; {number} round(s). {harness.machine_words()}")
    figures = [measure_row(row, rounds, number) for row in ROWS if row.key in options.rows]
    heads = ["N×T", "devices", "trimtab", "rejax", "× rejax", "target", "ceiling", "of ceiling"]
    print()
    print(harness.table([*heads, "target", ""], [described(one) for one in figures]))
    print("Medians over rounds, in environment steps per second; in brackets the range of ratios.")
    everything: dict[str, Any] = {"rows": figures}
    if options.sb3:
        sb3 = measure_sb3(rounds, number)
        everything["sb3"] = sb3
        ours, theirs = (
            statistics.median(one[name] for one in sb3["rounds"]) for name in ("ours", "sb3")
        )
        heads = ["N×T", "trimtab", "Stable-Baselines3, 1 thread", "× Stable-Baselines3"]
        cells = [harness.rate_words(ours), harness.rate_words(theirs)]
        print()
        print("The Zoo's settings: 20 epochs of one minibatch of 256.")
        print(
            harness.table(
                heads, [["8×32", *cells, harness.ratio_words(sb3["against_sb3"], "{:.0f}")]]
            )
        )
    harness.write_figures(options.json, everything)


if __name__ == "__main__":
    main()
