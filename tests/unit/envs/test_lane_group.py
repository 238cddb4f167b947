"""What every lane passes through: episode ends, checks with names, and mending."""

import functools

import numpy as np
import pytest
from broken_envs import Counting, NoReset, Pixels
from gymnasium import spaces

from trimtab.envs.gymnasium_spaces import space_of
from trimtab.envs.lane_group import GymnasiumMaker, LaneBuffers, LaneGroup
from trimtab.envs.seeding import restart_seed
from trimtab.errors import EnvironmentFaultError, UnsupportedSpaceError
from trimtab.faults import FaultPolicy
from trimtab.spaces import Box, Dict, Discrete


def started(make_env, lanes=2, seeds=None, **policy):
    group = LaneGroup(make_env, range(lanes), FaultPolicy(**policy))
    buffers = LaneBuffers.of(group.spec, lanes)
    group.attach(buffers)
    buffers.seed[:] = range(lanes) if seeds is None else seeds
    group.reset()
    return group, buffers


def broken(way, **policy):
    """Two lanes that break in that way at step 3, after two steps."""
    group, buffers = started(functools.partial(Counting, breaks=way), **policy)
    group.step()
    group.step()
    assert not group.take_faults()
    return group, buffers


def test_an_ended_lane_shows_its_successor_and_its_next_beginning():
    group, buffers = started(Counting, lanes=5)
    twins = [Counting() for _ in range(5)]
    for lane, twin in enumerate(twins):
        np.testing.assert_array_equal(twin.reset(seed=lane)[0], buffers.obs[0][lane])
    ends = 0
    for t in range(40):
        buffers.action[:] = [t % 2, 1, 0, 1, 0]
        group.step()
        for lane, twin in enumerate(twins):
            obs, reward, terminated, truncated, _ = twin.step(int(buffers.action[lane]))
            np.testing.assert_array_equal(buffers.next_obs[0][lane], obs)
            assert buffers.reward[lane] == reward
            assert (buffers.terminated[lane], buffers.truncated[lane]) == (terminated, truncated)
            if terminated or truncated:
                ends += 1
                obs, _ = twin.reset()
            np.testing.assert_array_equal(buffers.obs[0][lane], obs)
        assert not buffers.idle.any()
    assert ends > 20


BAD = {
    "nan": r"the observation\[1\] is nan",
    "infinite_reward": "the reward is inf, which is not a finite float32",
    "no_reward": r"the reward is None \(a NoneType\)",
    "object_reward": "the reward is <object",
    "vector_reward": r"the reward is an array of shape \(2,\)",
    "huge_reward": r"the reward is 1e\+300, which is not a finite float32",
    "wrong_shape": r"the observation has shape \(2,\); its space has shape \(3,\)",
    "wrong_dtype": r".*dtype <U1.*expected numbers of dtype float32",
    "objects": ".*dtype object",
    "overflow": r"the observation\[2\] is 1e\+300, which a float32 cannot hold",
    "outside": r"the observation\[1\] is 2000000.0, outside of its space, -1e\+06 to 1e\+06",
    "four": "step.. returned a tuple of 4, as in Gym before 0.26",
    "no_flag": "terminated is None",
}


@pytest.mark.parametrize("way", BAD)
def test_nonsense_is_named_with_environment_lane_step_and_index(way):
    group, _ = broken(way)
    where = "Counting, lane 0, step 3 of episode 1: "
    with pytest.raises(EnvironmentFaultError, match=where + BAD[way]):
        group.step()


@pytest.mark.parametrize("way", BAD)
def test_nonsense_may_cost_the_episode_instead(way):
    group, buffers = broken(way, on_bad_env="reset")
    group.step()
    assert buffers.idle.all()
    assert not (buffers.terminated | buffers.truncated).any()
    assert not buffers.reward.any()
    expected = [restart_seed(lane, 1) for lane in (0, 1)]
    numbers = [np.random.default_rng(seed).integers(1_000) for seed in expected]
    np.testing.assert_array_equal(buffers.obs[0], [[number, 1, 0] for number in numbers])
    np.testing.assert_array_equal(buffers.obs[0], buffers.next_obs[0])
    faults = group.take_faults()
    assert [(fault.lane, fault.step, fault.kind) for fault in faults] == [
        (0, 3, "bad"),
        (1, 3, "bad"),
    ]
    assert not group.take_faults()
    group.step()
    assert not buffers.idle.any()


def test_an_exception_costs_the_episode_and_keeps_its_traceback():
    group, buffers = broken("raises")
    group.step()
    assert buffers.idle.all()
    fault = group.take_faults()[0]
    assert str(fault).endswith(
        "step 3 of episode 1: step() raised ArithmeticError: the wheels came off"
    )
    assert 'raise ArithmeticError("the wheels came off")' in fault.traceback


def test_an_environment_that_always_raises_ends_the_run_at_the_limit():
    group, _ = started(functools.partial(Counting, breaks="raises"), lanes=1, max_restarts=4)
    for _ in range(3 * 5 - 1):
        group.step()
    with pytest.raises(
        EnvironmentFaultError, match=r"restarted 4 times.*\n\nTraceback.*(\n.*)*wheels"
    ):
        group.step()
    assert len(group.take_faults()) == 4


def test_raising_in_every_reset_is_one_clear_error():
    with pytest.raises(
        EnvironmentFaultError, match=r"lane 0, the reset of episode \d+: reset\(\)"
    ) as error:
        started(NoReset, max_restarts=3)
    assert "OSError: the licence server is gone" in str(error.value)


def test_rare_faults_never_reach_the_limit():
    group, _ = started(
        functools.partial(Counting, breaks="raises", at=9), lanes=1, max_restarts=112
    )
    for _ in range(2_000):
        group.step()
    assert len(group.take_faults()) == 2_000 // 9


def test_bounds_may_be_a_hint():
    group, buffers = broken("outside", observation_bounds="ignore")
    group.step()
    assert buffers.obs[0][0, 1] == 2e6


def test_a_reused_array_is_copied():
    group, buffers = started(functools.partial(Counting, shared_buffer=True))
    before = buffers.obs[0].copy()
    group._envs[0].buffer[:] = -1
    np.testing.assert_array_equal(buffers.obs[0], before)


def test_dictionaries_narrow_numbers_and_count_from_zero():
    group, buffers = started(Pixels, lanes=3)
    assert group.spec.observation == Dict.of(
        {
            "body": Dict.of({"speed": Box.of(-1, 1, (2,))}),  # Gymnasium sorts the keys
            "image": Box.of(0, 255, (4, 4, 3), "uint8"),
            "level": Discrete(3),
        }
    )
    twin = Pixels()
    first, _ = twin.reset(seed=2)
    speed, image, level = buffers.obs
    np.testing.assert_array_equal(image[2], first["image"])
    np.testing.assert_array_equal(level, [2, 2, 2])
    np.testing.assert_array_equal(speed[2], first["body"]["speed"].astype(np.float32))
    buffers.action[:] = [0, 1, 3]
    group.step()
    np.testing.assert_array_equal(buffers.reward, [-1, 0, 2])


def test_a_discrete_observation_outside_of_its_range_is_named():
    with pytest.raises(
        EnvironmentFaultError, match=r"part 'level' is 3, outside of its space, 0 to 2"
    ):
        started(functools.partial(Pixels, level=8))


def test_a_space_that_cannot_be_learned_from_is_refused():
    with pytest.raises(UnsupportedSpaceError, match=r"X: its observation space is Text.*Wrap"):
        space_of("X", "observation", spaces.Text(5))


def test_a_registered_environment_is_made_with_its_options():
    group, buffers = started(GymnasiumMaker("CartPole-v1", {"max_episode_steps": 7}))
    assert group.spec.id == "CartPole-v1"
    assert group.spec.max_episode_steps == 7
    assert group.spec.solved_at == 475
    for _ in range(7):
        buffers.action[:] = 1 - buffers.action
        group.step()
    assert buffers.truncated.all()


def test_restart_seeds_differ_and_repeat():
    seeds = [restart_seed(seed, restarts) for seed in range(20) for restarts in range(1, 20)]
    assert len(set(seeds)) == len(seeds)
    assert restart_seed(3, 0) == 3
    assert restart_seed(3, 2) == restart_seed(3, 2)
