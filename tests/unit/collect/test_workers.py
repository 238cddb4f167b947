"""The pool without faults: the same streams for any number of workers, light, and tidy."""

import gc
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from broken_envs import Counting, Differing, Pixels, Slow

from trimtab.collect.workers import WorkerPool, lanes_of_workers
from trimtab.envs.lane_group import GymnasiumMaker, LaneBuffers, LaneGroup
from trimtab.errors import EnvironmentFaultError, SettingError
from trimtab.faults import FaultPolicy
from trimtab.types import HostEnv

LANES = 5


def copies(tree):
    if isinstance(tree, dict):
        return {key: copies(value) for key, value in tree.items()}
    return tree.copy()


def history(pool, actions, seeds):
    """Everything that a pool answers to some actions."""
    rows = [copies(pool.reset(seeds))]
    for action in actions:
        rows += [copies(leaf) for leaf in pool.step(action)]
        assert pool.idle is None
    return rows


@pytest.mark.parametrize("make_env", [Counting, Pixels, GymnasiumMaker("Pendulum-v1")])
def test_lanes_are_the_same_for_any_number_of_workers(make_env):
    seeds = [7, 1, 5, 9, 2]
    group = LaneGroup(make_env, range(LANES), FaultPolicy())
    buffers = LaneBuffers.of(group.spec, LANES)
    group.attach(buffers)
    rng = np.random.default_rng(0)
    actions = [
        rng.integers(2, size=(LANES, *group.spec.action.shape)).astype(buffers.action.dtype)
        for _ in range(30)
    ]
    buffers.seed[:] = seeds
    group.reset()
    expected = [[leaf.copy() for leaf in buffers.obs]]
    for action in actions:
        buffers.action[:] = action
        group.step()
        for part in (
            buffers.obs,
            [buffers.reward],
            [buffers.terminated],
            [buffers.truncated],
            buffers.next_obs,
        ):
            expected.append([leaf.copy() for leaf in part])
    for num_workers in (2, LANES):
        pool = WorkerPool(make_env, LANES, num_workers)
        try:
            assert isinstance(pool, HostEnv)
            assert pool.spec == group.spec
            rows = history(pool, actions, seeds)
            again = history(pool, actions[:3], seeds)
        finally:
            pool.close()
        for row, leaves in zip(rows, expected, strict=True):
            for one, other in zip(leaves_of(row), leaves, strict=True):
                np.testing.assert_array_equal(one, other)
        for row, first in zip(again, rows, strict=False):
            for one, other in zip(leaves_of(row), leaves_of(first), strict=True):
                np.testing.assert_array_equal(one, other)


def leaves_of(tree):
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves_of(value)]
    return [tree]


def test_a_function_of_the_main_program_can_be_sent(tmp_path):
    script = tmp_path / "script.py"  # without a guard: it trains when it is imported
    script.write_text(
        "import gymnasium\n"
        "from trimtab.collect.workers import WorkerPool\n"
        "length = 3\n"
        "def make_env():\n"
        "    return gymnasium.make('CartPole-v1', max_episode_steps=length)\n"
        "pool = WorkerPool(make_env, 2, 1)\n"
        "pool.reset([0, 1])\n"
        "print([pool.step([0, 1]).truncated.tolist() for _ in range(3)])\n"
        "pool.close()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "[[False, False], [False, False], [True, True]]\n"
    assert not done.stderr


def test_a_worker_has_neither_jax_nor_much_else():
    program = (
        "import sys, trimtab.collect.worker_entry; "
        "print([name for name in ('jax', 'rich', 'tyro', 'scipy', 'cloudpickle') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # Gymnasium itself imports cloudpickle.
    assert done.stdout.strip() in ("[]", "['cloudpickle']")


def test_closing_ends_the_processes_and_closes_the_files():
    gc.collect()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    pool = WorkerPool(Counting, 2, 2)
    processes = [worker.process for worker in pool._workers]
    begun = time.monotonic()
    pool.close()
    pool.close()
    assert time.monotonic() - begun < 5
    assert [process.poll() for process in processes] == [0, 0]
    del pool
    gc.collect()
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_ctrl_c_does_not_reach_the_workers():
    pool = WorkerPool(Counting, 2, 1)
    try:
        pool.reset([0, 1])
        group = os.getpgid(pool._workers[0].process.pid)
        assert group != os.getpgid(0)
        os.killpg(group, 2)
        pool.step(np.zeros(2, np.int32))
        assert not pool.take_faults()
    finally:
        pool.close()


def test_lanes_are_shared_evenly():
    assert lanes_of_workers(7, 3) == [range(2), range(2, 4), range(4, 7)]
    assert lanes_of_workers(4, 4) == [range(n, n + 1) for n in range(4)]


@pytest.mark.parametrize("num_workers", [0, 5])
def test_more_workers_than_lanes_are_refused(num_workers):
    with pytest.raises(
        SettingError, match=rf"num_workers = {num_workers} is not valid.*num_envs = 4"
    ):
        WorkerPool(Counting, 4, num_workers)


def test_lanes_with_different_spaces_are_refused():
    with pytest.raises(EnvironmentFaultError, match="lane 1 has the spaces"):
        WorkerPool(Differing(), 2, 1)


def test_who_answers_first_is_ready_first():
    pool = WorkerPool(Slow, 3, 3)
    try:
        pool.reset([2, 1, 0])
        waiting, order = {0, 1, 2}, []
        for number in waiting:
            pool.begin(number, np.ones(1, np.int32))
        while waiting:
            for number in pool.ready(waiting):
                assert not pool.finish(number)
                waiting.remove(number)
                order.append(number)
        assert order == [2, 1, 0]
        np.testing.assert_array_equal(pool.rows[1].next_obs[0], pool.buffers.next_obs[0][1:2])
    finally:
        pool.close()
