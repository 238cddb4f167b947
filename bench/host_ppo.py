"""How fast PPO is on environments outside of the compiled program, beside its peers.

CartPole-v1 and HalfCheetah-v5 of Gymnasium, 8 lanes in process, the same settings for all:

    CartPole-v1       8×32, 20 epochs of one minibatch of 256, γ 0.98, λ 0.8, learning rate 10⁻³ and
                      clip range 0.2, both falling: the settings of Stable-Baselines3's Zoo
    HalfCheetah-v5    8×256, 10 epochs of 32 minibatches of 64, γ 0.99, λ 0.95, learning rate
                      3·10⁻⁴, clip range 0.2: those of Schulman et al. 2017 for MuJoCo

Actor and critic are tanh networks of 64×64 units each. trimtab runs through the seam, as the
training loop calls it; Stable-Baselines3 and sbx (the same in JAX) through ``learn``. Each is a
process of its own, with one thread to compute with, which is the fastest for all three.

    × SB3, × sbx     environment steps per second of trimtab over those of the peer
    simulator        8 environments stepped with random actions in a loop, and nothing else
    of simulator     steps per second of trimtab over those of the simulator alone

A round runs all of them, one after the other, and gives a ratio of each; reported is the median
over rounds, with the range. Compiling and a warm-up are never timed.

    python bench/host_ppo.py                     the table (needs `make peers`)
    python bench/host_ppo.py --quick             one short round
    python bench/host_ppo.py --overlap           also with collection while learning (not the same
                                                 algorithm any more: one policy version behind)
    python bench/host_ppo.py --profile           where trimtab's own time goes
    python bench/host_ppo.py --tasks CartPole-v1
"""

import dataclasses
import json
import statistics
import sys
from typing import Any

import harness
import sessions

LANES = 8


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment, the settings that all libraries get, and what the ratios are held to."""

    env: str
    num_steps: int
    epochs: int
    minibatch: int
    learning_rate: float
    gamma: float
    gae_lambda: float
    falling: bool  # whether the learning rate and the clip range fall to zero over the run
    against_sb3: float
    against_sbx: float
    steps: int  # in a repetition: some seconds

    @property
    def batch(self) -> int:
        return LANES * self.num_steps


TASKS = {
    task.env: task
    for task in (
        Task("CartPole-v1", 32, 20, 256, 1e-3, 0.98, 0.8, True, 4.0, 2.5, 30_720),
        Task("HalfCheetah-v5", 256, 10, 64, 3e-4, 0.99, 0.95, False, 2.5, 1.5, 20_480),
    )
}
REPETITIONS, QUICK_REPETITIONS = 3, 1


def configuration(task: Task, **changes: Any) -> Any:
    """trimtab's words for the settings of a task."""
    schedule = "linear" if task.falling else "constant"
    settings = {
        "num_envs": LANES,
        "num_steps": task.num_steps,
        "total_steps": 100_000_000,
        "epochs": task.epochs,
        "minibatches": task.batch // task.minibatch,
        "learning_rate": task.learning_rate,
        "learning_rate_schedule": schedule,
        "clip_range_schedule": schedule,
        "gamma": task.gamma,
        "gae_lambda": task.gae_lambda,
        "vectorization": "in-process",
    }
    return sessions.configured(f"gymnasium:{task.env}", {**settings, **changes})


# Workers: each of these runs in a process of its own.


def measure_trimtab(task: Task, steps: int, repetitions: int, overlap: bool) -> None:
    """Call upon call of the session's step, as the training loop makes them."""
    session = sessions.opened(configuration(task, overlap=overlap))
    advance, batch = sessions.advancing(session)
    calls = max(1, steps // batch)

    def repeat() -> None:
        for _ in range(calls):
            advance()

    repeat()
    harness.wait_for_go()
    found = harness.rates(repeat, calls * batch, repetitions)
    session.close()
    harness.answer(rate=statistics.median(found), rates=found)


def measure_simulator(task: Task, steps: int, repetitions: int) -> None:
    """Gymnasium's environments alone, stepped one after another with random actions."""
    import gymnasium

    envs = [gymnasium.make(task.env, disable_env_checker=True) for _ in range(LANES)]
    envs[0].action_space.seed(0)
    actions = [envs[0].action_space.sample() for _ in range(1024)]
    rounds = max(1, steps // LANES)

    def repeat() -> None:
        for number in range(rounds):
            action = actions[number % len(actions)]
            for env in envs:
                answer = env.step(action)
                if answer[2] or answer[3]:
                    env.reset()

    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    repeat()
    harness.wait_for_go()
    found = harness.rates(repeat, rounds * LANES, repetitions)
    harness.answer(rate=statistics.median(found), rates=found)


def work(what: str, env: str, steps: str, repetitions: str) -> None:
    task = TASKS[env]
    if what == "simulator":
        measure_simulator(task, int(steps), int(repetitions))
    else:
        measure_trimtab(task, int(steps), int(repetitions), overlap=what == "overlap")


# Rounds


class Rounds:
    """Runs workers, one at a time."""

    def __init__(self, quick: bool):
        self.quick = quick
        self.repetitions = QUICK_REPETITIONS if quick else REPETITIONS
        self.peers = {"sb3": harness.peers_python(), "sbx": harness.peers_python("sbx")}
        self.ours = harness.environment_for_workers(
            NPROC=None, XLA_FLAGS=None, TRIMTAB_CACHE="off", JAX_COMPILATION_CACHE_DIR=None
        )
        self.theirs = harness.environment_for_workers(
            NPROC="1", XLA_FLAGS=None, OMP_NUM_THREADS="1", PYTHONPATH=None
        )

    def rate(self, what: str, task: Task) -> float:
        """Environment steps per second of a library, or of the simulator."""
        steps = task.steps // 4 if self.quick else task.steps
        if what in self.peers:
            worker = harness.PEER_WORKERS / "sb3_ppo.py"
            given = json.dumps(dataclasses.asdict(task))
            command = [self.peers[what], worker, what, given, steps // 4, self.repetitions]
            found = harness.measured(command, self.theirs)["rate"]
        else:
            command = [sys.executable, __file__, "--work", what, task.env, steps, self.repetitions]
            found = harness.measured(command, self.ours)["rate"]
        print(f"  {task.env}, {what}: {found:,.0f} a second", file=sys.stderr, flush=True)
        return found


def measure_task(task: Task, rounds: Rounds, number: int, overlap: bool) -> dict[str, Any]:
    """All rounds of one task."""
    names = ["trimtab", "sb3", "sbx", "simulator", *(["overlap"] if overlap else [])]
    measured = [{name: rounds.rate(name, task) for name in names} for _ in range(number)]
    ratios = {
        f"trimtab/{name}": [one["trimtab"] / one[name] for one in measured]
        for name in ("sb3", "sbx", "simulator")
    }
    return {"task": dataclasses.asdict(task), "rounds": measured, **ratios}


def described(figures: dict[str, Any]) -> list[list[str]]:
    """The lines of a task in the table that is printed."""
    task = figures["task"]

    def rate(name: str) -> float:
        return statistics.median(one[name] for one in figures["rounds"])

    lines = [[task["env"], "trimtab", f"{rate('trimtab'):,.0f}", "", "", ""]]
    for name, words in (("sb3", "Stable-Baselines3"), ("sbx", "sbx")):
        ratios, target = figures[f"trimtab/{name}"], task[f"against_{name}"]
        lines.append(
            [
                "",
                words,
                f"{rate(name):,.0f}",
                f"× {harness.ratio_words(ratios)}",
                f"≥ {target:g}",
                harness.verdict(statistics.median(ratios) >= target),
            ]
        )
    share = harness.percent_words(figures["trimtab/simulator"])
    lines.append(["", "the simulator alone", f"{rate('simulator'):,.0f}", share, "", ""])
    if "overlap" in figures["rounds"][0]:
        lines.append(["", "trimtab, overlapping", f"{rate('overlap'):,.0f}", "", "", ""])
    return lines


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
        return
    parser = harness.arguments(__doc__)
    parser.add_argument("--rounds", type=int, metavar="R", help="rounds (3; quick: 1)")
    parser.add_argument("--overlap", action="store_true", help="also with --overlap")
    parser.add_argument("--profile", action="store_true", help="where trimtab's time goes")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="ENV")
    options = parser.parse_args()
    tasks = [TASKS[name] for name in options.tasks]
    if options.profile:
        import host_profile

        for task in tasks:
            print(host_profile.table(configuration(task), task.steps, task.env))
        return
    number = options.rounds or (1 if options.quick else 3)
    rounds = Rounds(options.quick)
    print(f"PPO on host environments, 8 lanes; {number} round(s). {harness.machine_words()}")
    figures = [measure_task(task, rounds, number, options.overlap) for task in tasks]
    heads = ["environment", "", "steps/s", "trimtab over it", "target", ""]
    print()
    print(harness.table(heads, [line for one in figures for line in described(one)]))
    print("Medians over rounds; in brackets the range of ratios.")
    harness.write_figures(options.json, {"tasks": figures})


if __name__ == "__main__":
    main()
