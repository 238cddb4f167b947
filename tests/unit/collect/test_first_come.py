"""First come, first served: who is ready is learned from, and what is too old is dropped."""

import functools

import jax
import numpy as np
import pytest
from broken_envs import Counting, Slow

from trimtab.algos.ppo import PPO
from trimtab.collect.acting import ActingPrograms
from trimtab.collect.first_come import FirstComeCollector
from trimtab.collect.host import lane_seeds
from trimtab.collect.workers import WorkerPool
from trimtab.faults import Deadlines, FaultPolicy

STEPS = 6


@pytest.fixture
def started():
    """Makes a collector over a pool, and closes the pool."""
    pools = []

    def make(make_env, num_envs, num_workers, max_staleness=4, seed=0, **policy):
        pool = WorkerPool(make_env, num_envs, num_workers, FaultPolicy(**policy), Deadlines(step=9))
        pools.append(pool)
        algorithm, root = PPO(hidden_sizes=(4,)), jax.random.key(seed)
        learner = algorithm.init(root, pool.spec)
        lanes = num_envs // num_workers
        programs = ActingPrograms(algorithm, learner, pool.spec.action, lanes, STEPS)
        collector = FirstComeCollector(pool, programs, STEPS, max_staleness)
        collector.start(algorithm, learner, root, 0)
        return collector, lambda update: collector.collect(algorithm, learner, root, update)

    yield make
    for pool in pools:
        pool.close()


def assert_lanes_are_whole(rollouts):
    """Every fragment goes on where that lane's fragment before it ended: nothing is lost."""
    last = {}
    for rollout in rollouts:
        for lane in range(rollout.reward.shape[1]):
            obs, following = rollout.obs[:, lane], rollout.next_obs[:, lane]
            ended = (rollout.terminated | rollout.truncated)[:, lane]
            for row in range(STEPS):
                number, episode, time = obs[row].tolist()
                assert following[row].tolist() == [number, episode, time + 1]
                if number in last:
                    assert (episode, time) == last[number]
                last[number] = (episode + 1, 0) if ended[row] else (episode, time + 1)
    return last


def test_rollouts_are_made_of_whole_fragments(started):
    collector, collect = started(Counting, 4, 2)
    rollouts = [collect(update) for update in range(6)]
    assert all(rollout.reward.shape == (STEPS, 4) for rollout in rollouts)
    assert len(assert_lanes_are_whole(rollouts)) == 4
    episodes = collector.take_episodes()
    ended = sum(int((r.terminated | r.truncated).sum()) for r in rollouts)
    assert len(episodes) >= ended > 10
    assert {episode.lane for episode in episodes} == {0, 1, 2, 3}


def test_a_slow_worker_is_not_waited_for(started):
    def paces(seed):
        return sorted(one % 3 for one in lane_seeds(jax.random.key(seed), 0, 3))

    a_seed_with_every_pace = next(seed for seed in range(100) if paces(seed) == [0, 1, 2])
    _, collect = started(Slow, 3, 3, seed=a_seed_with_every_pace)
    first = collect(0)
    assert len(np.unique(first.obs[0, :, 0])) == 1  # all three fragments are the quickest lane's
    assert_lanes_are_whole([first, collect(1)])


def test_fragments_know_their_policy_and_old_ones_are_dropped(started):
    collector, collect = started(Counting, 2, 2)
    collect(0)
    assert collector.take_metrics()["rollout/staleness_max"] == 0
    # Two fragments were begun before update 3: they are of policy 0.
    collect(3)
    metrics = collector.take_metrics()
    assert metrics["rollout/staleness_max"] == 3
    assert metrics["rollout/dropped_fragments"] == 0
    collect(50)
    metrics = collector.take_metrics()
    assert metrics["rollout/dropped_fragments"] >= 1
    assert metrics["rollout/staleness_max"] == 0


def test_a_restart_cuts_the_fragment_and_leaves_no_hole(started):
    make_env = functools.partial(Counting, breaks="raises", at=5)
    collector, collect = started(make_env, 2, 2, max_restarts=1000)
    rollouts = [collect(update) for update in range(8)]
    assert len(collector._pool.take_faults()) >= 10
    for rollout in rollouts:
        # Four steps, and the fifth is no transition: the fourth is cut. A fragment's last row
        # needs no cut: nothing follows on it.
        times = rollout.obs[:, :, 2]
        assert times.max() == 3
        np.testing.assert_array_equal(rollout.truncated[:-1], times[:-1] == 3)
        assert not rollout.terminated.any()
    assert not collector.take_episodes()  # a broken episode counts nowhere
