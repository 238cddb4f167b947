"""Each way in which an environment or its worker process can break, and what becomes of it."""

import functools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from broken_envs import Counting, NoConstruction, NoReset, flaky_cartpole

from trimtab.collect.workers import WorkerPool
from trimtab.errors import EnvironmentFaultError
from trimtab.faults import Deadlines, FaultPolicy

SUPPORT = Path(__file__).parent.parent / "support"
SHORT = Deadlines(step=0.4, start=30.0)


def breaking(way, **options):
    return functools.partial(Counting, breaks=way, **options)


@pytest.fixture
def pools():
    """Makes pools, and closes them."""
    made = []

    def make(make_env, num_envs=4, num_workers=2, deadlines=SHORT, **policy):
        pool = WorkerPool(make_env, num_envs, num_workers, FaultPolicy(**policy), deadlines)
        made.append(pool)
        pool.reset(range(num_envs))
        return pool

    yield make
    for pool in made:
        pool.close()


def steps(pool, count):
    for _ in range(count):
        step = pool.step(np.ones(pool.num_envs, np.int32))
    return step


def test_raising_in_a_step_costs_the_episode_and_not_the_worker(pools):
    pool = pools(breaking("raises"))
    before = [worker.process.pid for worker in pool._workers]
    steps(pool, 2)
    assert pool.idle is None
    step = steps(pool, 1)
    assert pool.idle.all()
    np.testing.assert_array_equal(step.obs, step.next_obs)
    assert not step.reward.any()
    faults = pool.take_faults()
    assert sorted(fault.lane for fault in faults) == [0, 1, 2, 3]
    assert all("the wheels came off" in fault.traceback for fault in faults)
    steps(pool, 1)
    assert pool.idle is None
    assert [worker.process.pid for worker in pool._workers] == before


def test_raising_in_every_reset_ends_with_one_clear_error(pools):
    with pytest.raises(EnvironmentFaultError, match=r"restarted 3 times.*limit") as error:
        pools(NoReset, max_restarts=3)
    assert str(error.value).count("OSError: the licence server is gone") == 2  # said, and traced


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("nan", r"the observation\[1\] is nan"),
        ("no_reward", "the reward is None"),
        ("object_reward", "the reward is <object"),
        ("wrong_shape", r"shape \(2,\); its space has shape \(3,\)"),
        ("wrong_dtype", "dtype <U1"),
        ("overflow", r"\[2\] is 1e\+300"),
        ("outside", r"\[1\] is 2000000.0, outside of its space"),
        ("four", "a tuple of 4"),
    ],
)
def test_nonsense_in_a_worker_ends_the_run_with_its_place(pools, way, words):
    pool = pools(breaking(way), num_envs=2, num_workers=1)
    steps(pool, 2)
    with pytest.raises(
        EnvironmentFaultError, match=f"Counting, lane 0, step 3 of episode 1: .*{words}"
    ):
        steps(pool, 1)


def test_buffers_that_an_environment_reuses_are_copied(pools):
    """What was shown stays what it was, though the environment writes into its own array."""
    reusing, fresh = pools(breaking("nothing", shared_buffer=True)), pools(breaking("nothing"))
    np.testing.assert_array_equal(reusing.reset(range(4)), fresh.reset(range(4)))
    for _ in range(20):
        one, other = steps(reusing, 1), steps(fresh, 1)
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)
        assert (
            not np.array_equal(one.obs, one.next_obs) or not (one.terminated | one.truncated).any()
        )


def test_a_hang_in_a_step_is_ended_by_the_deadline(pools):
    pool = pools(breaking("hangs"), max_restarts=1)
    steps(pool, 2)
    begun = time.monotonic()
    step = steps(pool, 1)
    assert 0.4 < time.monotonic() - begun < 15
    assert pool.idle.all()
    assert [str(fault) for fault in pool.take_faults()] == [
        f"Counting, lane {lane}, step 3 of episode 1: its worker process gave no answer within "
        "0.4 s"
        for lane in (0, 2)
    ]
    np.testing.assert_array_equal(step.obs[:, 1:], [[1, 0]] * 4)
    steps(pool, 2)
    assert pool.idle is None
    with pytest.raises(
        EnvironmentFaultError, match=r"lane 0, step 3.*restarted 1 times.*max_restarts"
    ):
        steps(pool, 1)


def test_a_hang_in_construction_names_the_environment(pools):
    with pytest.raises(
        EnvironmentFaultError,
        match=r"NoConstruction: worker 0 \(lanes 0 to 1\) gave no answer within 0.8 s. .*start",
    ):
        pools(NoConstruction, deadlines=Deadlines(start=0.8))


def test_an_exception_in_construction_keeps_its_traceback(pools):
    with pytest.raises(
        EnvironmentFaultError, match=r"could not make its environments: AttributeError"
    ) as error:
        pools(breaking("not a method"))
    assert "Traceback" in str(error.value)


def test_a_killed_worker_is_noticed_at_once_and_replaced(pools):
    pool = pools(Counting, deadlines=Deadlines(step=60))
    steps(pool, 5)
    victim = pool._workers[1].process
    os.kill(victim.pid, signal.SIGKILL)
    begun = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        noticed = []
        replace = pool._replace
        patch.setattr(pool, "_replace", lambda *a: (noticed.append(time.monotonic()), replace(*a)))
        step = steps(pool, 1)
    assert noticed[0] - begun < 1
    np.testing.assert_array_equal(pool.idle, [False, False, True, True])
    np.testing.assert_array_equal(step.obs[2:, 1:], [[1, 0]] * 2)
    assert [fault.kind for fault in pool.take_faults()] == ["died"]
    steps(pool, 5)
    assert pool.idle is None


def test_an_environment_that_kills_its_process_is_named(pools):
    pool = pools(breaking("dies"), num_envs=2, num_workers=2)
    steps(pool, 3)
    assert [str(fault) for fault in pool.take_faults()] == [
        f"Counting, lane {lane}, step 3 of episode 1: its worker process was ended by SIGKILL"
        for lane in (0, 1)
    ]


TRAINER = """
import sys
sys.path.insert(0, {support!r})
from broken_envs import Counting
from trimtab.collect.workers import WorkerPool
import functools, numpy as np
pool = WorkerPool(functools.partial(Counting, breaks="hangs"), 2, 2)
pool.reset([0, 1])
print(*(worker.process.pid for worker in pool._workers), flush=True)
while True:  # hangs at the third step, with a deadline of a minute
    pool.step(np.ones(2, np.int32))
"""


def alive(pid):
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    return not re.search(r"State:\s+Z", status)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends hanging orphans")
def test_no_orphans_and_no_shared_memory_after_the_trainer_is_killed():
    before = set(os.listdir("/dev/shm"))
    program = TRAINER.format(support=str(SUPPORT))
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as trainer:
        workers = [int(pid) for pid in trainer.stdout.readline().split()]
        time.sleep(0.3)
        assert len(workers) == 2
        assert all(map(alive, workers))
        trainer.kill()
    deadline = time.monotonic() + 3
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(alive, workers))
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "trimtab" in name]


def test_restarts_equal_the_faults_that_there_were(pools, tmp_path):
    marks = tmp_path / "marks"
    make_env = functools.partial(flaky_cartpole, marks, raises=1 / 50, hangs=1 / 500)
    pool = pools(make_env, deadlines=Deadlines(step=1.5), max_restarts=100)
    idle_lanes = 0
    for _ in range(250):
        steps(pool, 1)
        idle_lanes += 0 if pool.idle is None else int(pool.idle.sum())
    kinds = [fault.kind for fault in pool.take_faults()]
    made = marks.read_text()
    assert 10 < made.count("r") == kinds.count("raised")
    assert 0 < made.count("h") == kinds.count("hung")
    assert len(made) == len(kinds)
    # A hang costs the lanes of its worker their episodes, an exception only its own lane's.
    assert len(kinds) <= idle_lanes <= made.count("r") + 2 * made.count("h")
