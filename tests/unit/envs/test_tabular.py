"""Transition tables: against the table itself, by count; against Gymnasium's; and by hand."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from trimtab.envs import make
from trimtab.envs.tabular import TabularEnv, TabularState
from trimtab.errors import EnvironmentFaultError, SettingError

# State 0: action 0 stays (reward 1) or moves on to 1 (reward 2), evenly; action 1 goes to state 1.
# State 1: both actions end the task, in state 0, with reward 10.
CHAIN = {
    0: {0: [(0.5, 0, 1.0, False), (0.5, 1, 2.0, False)], 1: [(1.0, 1, 0.0, False)]},
    1: {0: [(1.0, 0, 10.0, True)], 1: [(1.0, 0, 10.0, True)]},
}


def step_from(env: TabularEnv, state: int, action: int, draws: int, time: int = 0):
    """``draws`` transitions from one state with one action."""
    start = TabularState(jnp.int32(state), jnp.int32(time))
    keys = jax.random.split(jax.random.key(state * 100 + action), draws)
    return jax.vmap(lambda key: env.step(key, start, jnp.int32(action)))(keys)[1]


def test_arrays_of_a_hand_made_table() -> None:
    env = TabularEnv.of("Chain", CHAIN, [0.25, 0.75])
    np.testing.assert_array_equal(
        env.transition, [[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]]
    )
    np.testing.assert_array_equal(
        env.continuation, [[[0.5, 0.5], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]
    )
    np.testing.assert_array_equal(env.expected_reward, [[1.5, 0.0], [10.0, 10.0]])
    assert env.transition.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        env.probability[0] = 0.0
    # One step: ¼·1.5 + ¾·10. Two: from 0, 1.5 + ½·1.5 + ½·10 = 7.25 or 10; from 1, 10.
    assert env.optimal_return(1) == 7.875
    assert env.optimal_return(2) == 10.0
    assert env.spec.solved_at is None


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("FrozenLake-v1", {}),
        ("FrozenLake-v1", {"success_rate": 0.7}),
        ("CliffWalkingSlippery-v1", {}),
    ],
)
def test_frequencies_follow_the_table(env_id: str, options: dict) -> None:
    """χ² = Σ (count − expected)² / expected over all states and actions, 3000 draws of each."""
    draws = 3000
    env = make(env_id, **options)
    states, actions = env.expected_reward.shape
    key = jax.random.key(0)

    def one(key, state, action):
        return env.step(key, TabularState(state, jnp.int32(0)), action)[1].obs

    grid = np.indices((states, actions)).reshape(2, -1).repeat(draws, axis=1).astype(np.int32)
    reached = jax.jit(jax.vmap(one))(jax.random.split(key, grid.shape[1]), *grid)
    count = np.zeros((states, actions, states))
    np.add.at(count, (grid[0], grid[1], np.array(reached)), 1)
    expected = draws * env.transition
    possible = expected > 0
    assert not count[~possible].any()
    statistic = ((count - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = possible.sum() - states * actions
    assert 1e-3 < scipy.stats.chi2.sf(statistic, freedom) < 1 - 1e-3


def test_first_states_follow_the_initial_distribution() -> None:
    env = make("Taxi-v4")
    keys = jax.random.split(jax.random.key(0), 60_000)
    _, obs = jax.jit(jax.vmap(env.reset))(keys)
    count = np.bincount(np.array(obs), minlength=500)
    starts = env.initial > 0
    assert starts.sum() == 300
    assert not count[~starts].any()
    assert scipy.stats.chisquare(count[starts], 60_000 * env.initial[starts]).pvalue > 1e-3


@pytest.mark.parametrize("env_id", ["CliffWalking-v1", "Taxi-v4", "FrozenLake-v1"])
def test_deterministic_transitions_are_gymnasiums(env_id: str) -> None:
    """Every state and action, with its next state, reward and flag, as in Gymnasium's own table."""
    options = {"is_slippery": False} if env_id == "FrozenLake-v1" else {}
    env = make(env_id, **options)
    theirs = gymnasium.make(env_id, **options)
    table = theirs.unwrapped.P  # pyright: ignore[reportAttributeAccessIssue]
    theirs.close()
    pairs = [(s, a) for s in table for a in table[s]]
    state, action = np.array(pairs, np.int32).T

    def one(state, action):
        return env.step(jax.random.key(0), TabularState(state, jnp.int32(0)), action)[1]

    ours = jax.vmap(one)(state, action)
    _, reached, reward, terminated = zip(*(table[s][a][0] for s, a in pairs), strict=True)
    np.testing.assert_array_equal(ours.obs, reached)
    np.testing.assert_array_equal(ours.reward, reward)
    np.testing.assert_array_equal(ours.terminated, terminated)
    assert not ours.truncated.any()


def test_clock_and_task() -> None:
    env = make("FrozenLake-v1", is_slippery=False)
    right, down = 2, 1
    # Left of the start is a wall: the lane stays, and the clock runs out at step 100.
    assert not step_from(env, 0, 0, 1, time=98).truncated.any()
    last = step_from(env, 0, 0, 1, time=99)
    assert last.truncated.all()
    assert not last.terminated.any()
    # State 5 is a hole, state 15 the goal. Where task and clock end together, the task wins.
    hole = step_from(env, 1, down, 1)
    assert (hole.obs[0], hole.reward[0], hole.terminated[0]) == (5, 0.0, True)
    goal = step_from(env, 14, right, 1, time=99)
    assert (goal.reward[0], goal.terminated[0], goal.truncated[0]) == (1.0, True, False)


def test_options() -> None:
    eight = make("tabular:FrozenLake-v1", map_name="8x8")
    assert eight.spec.observation.n == 64
    assert eight.spec.max_episode_steps == 100  # the id's, as in Gymnasium
    random = make("FrozenLake-v1", size=6, map_seed=3)
    assert random.spec.observation.n == 36
    np.testing.assert_array_equal(
        random.probability, make("FrozenLake-v1", size=6, map_seed=3).probability
    )
    assert (random.terminated != make("FrozenLake-v1", size=6, map_seed=4).terminated).any()
    assert make("FrozenLake-v1", size=6).spec.id == "FrozenLake-v1"
    assert make("FrozenLake-v1", desc=["SF", "HG"]).spec.observation.n == 4
    assert make("CliffWalking-v1", max_episode_steps=None).spec.max_episode_steps is None
    endless = make("CliffWalking-v1", max_episode_steps=None)
    assert not step_from(endless, 36, 3, 2, time=10**6).truncated.any()


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("FrozenLake-v1", {"is_sliperry": True}, "no option 'is_sliperry'. Did you mean 'is_slip"),
        ("FrozenLake-v1", {"map_name": "3x3"}, "no map '3x3'. It has 4x4, 8x8"),
        ("FrozenLake-v1", {"size": 4, "map_name": "4x4"}, "give them, or map_name, or desc"),
        ("FrozenLake-v1", {"size": 1}, "size = 1 is not valid"),
        ("FrozenLake-v1", {"size": 4, "map_seed": "a"}, "map_seed = 'a' is not valid"),
        ("Taxi-v4", {"fickle_passenger": True}, "no option 'fickle_passenger'"),
        ("Taxi-v4", {"max_episode_steps": 0}, "max_episode_steps = 0 is not valid"),
    ],
)
def test_wrong_options_get_a_sentence(env_id: str, options: dict, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make(env_id, **options)


def test_wrong_tables_get_a_sentence() -> None:
    half = {0: {0: [(0.5, 0, 0.0, False)]}}
    with pytest.raises(EnvironmentFaultError, match=r"Half: the outcomes of state 0, action 0 .*"):
        TabularEnv.of("Half", half, [1.0])
    with pytest.raises(EnvironmentFaultError, match="a next state is outside 0 … 0: 3 … 3"):
        TabularEnv.of("Off", {0: {0: [(1.0, 3, 0.0, False)]}}, [1.0])
    with pytest.raises(EnvironmentFaultError, match="initial distribution must be 2 prob"):
        TabularEnv.of("Start", CHAIN, [0.5, 0.4])


def test_exact_optima() -> None:
    """Gymnasium's documentation gives 0.74 and 0.91; −13 is the cliff's twelve steps and one."""
    optimum = {}
    for env_id in ("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4"):
        env = make(env_id)
        assert env.spec.max_episode_steps is not None
        optimum[env_id] = env.optimal_return(env.spec.max_episode_steps)
    assert optimum["FrozenLake-v1"] == pytest.approx(0.744, abs=1e-3)
    assert optimum["FrozenLake8x8-v1"] == pytest.approx(0.913, abs=1e-3)
    assert optimum["CliffWalking-v1"] == -13.0
    # So Gymnasium's threshold cannot be met but by luck, and the table has a mark of its own.
    assert optimum["Taxi-v4"] == pytest.approx(7.93)
    assert gymnasium.spec("Taxi-v4").reward_threshold == 8
    # With options the mark follows the optimum: 5% below 1.
    assert make("FrozenLake-v1", is_slippery=False).spec.solved_at == 0.95
