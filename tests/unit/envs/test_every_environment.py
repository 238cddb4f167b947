"""What holds for every environment in the table."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.envs import list_environments, make
from trimtab.spaces import Box, Discrete, Space, to_environment, zeros

ENTRIES = list_environments()
# Gymnasium's threshold for Taxi, 8, is above the exact optimum, 7.93 (see test_tabular.py).
OWN_MARK = {"Taxi-v4"}
# Gymnasium never truncates CliffWalking, so a policy that walks into a wall would go on for ever.
OWN_LIMIT = {"CliffWalking-v1": 200, "CliffWalkingSlippery-v1": 200}

# Gymnax declares bounds for these that their observations leave.
BOUNDS_TOO_TIGHT = {"MemoryChain-bsuite", "GaussianBandit-misc"}


def short(space: Space) -> str:
    """A space as the table writes it."""
    return str(space) if isinstance(space, Discrete) else f"Box({'×'.join(map(str, space.shape))})"


def avals(tree: object) -> list[tuple]:
    """Path, shape, dtype and weakness of each leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(str(path), leaf.shape, leaf.dtype, leaf.weak_type) for path, leaf in leaves]


# One line of the table each; Gymnasium's are compared below.
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_contract_and_one_compiled_rollout(entry) -> None:
    env = make(f"{entry.backend}:{entry.id}")
    assert hash(env) == object.__hash__(env)
    assert env.spec.id == entry.id
    assert env.spec.solved_at == entry.solved_at
    assert short(env.spec.action) == entry.action
    assert short(env.spec.observation) == entry.observation

    # A reset and a step answer with the same strong types, so a scan is traced once.
    key = jax.random.key(0)
    state, obs = jax.eval_shape(env.reset, key)
    action = jnp.asarray(zeros(env.spec.action))
    stepped, transition = jax.eval_shape(env.step, key, state, action)
    assert avals(state) == avals(stepped)
    assert avals(obs) == avals(transition.obs)
    dtype = jnp.int32 if isinstance(env.spec.observation, Discrete) else jnp.float32
    assert avals(obs) == [("()", env.spec.observation.shape, dtype, False)]
    assert {leaf.dtype.name for leaf in jax.tree.leaves(state)} <= {"float32", "int32", "bool"}
    assert avals(transition)[1:] == [
        ("(GetAttrKey(name='reward'),)", (), jnp.float32, False),
        ("(GetAttrKey(name='terminated'),)", (), jnp.bool, False),
        ("(GetAttrKey(name='truncated'),)", (), jnp.bool, False),
    ]
    assert not any(weak for *_, weak in avals((state, transition)))

    traces = []

    # Unoptimised: compiling is nearly all of this test's time.
    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def rollout(key):
        traces.append(env)

        def step(carry, key):
            state, _ = carry
            keys = jax.random.split(key, 3)
            if isinstance(env.spec.action, Box):
                action = jax.random.uniform(keys[0], env.spec.action.shape, minval=-1, maxval=1)
            else:
                action = jax.random.randint(keys[0], (), 0, env.spec.action.n)
            state, transition = env.step(keys[1], state, to_environment(env.spec.action, action))
            ended = transition.terminated | transition.truncated
            carry = jax.tree.map(
                lambda first, on: jnp.where(ended, first, on),
                env.reset(keys[2]),
                (state, transition.obs),
            )
            return carry, transition

        first, on = jax.random.split(key)
        return jax.lax.scan(step, env.reset(first), jax.random.split(on, 100))[1]

    outcome = rollout(key)
    rollout(jax.random.key(1))
    assert len(traces) == 1
    assert np.isfinite(outcome.obs).all()
    assert np.isfinite(outcome.reward).all()
    assert not (outcome.terminated & outcome.truncated).any()
    if isinstance(env.spec.observation, Discrete):
        assert (outcome.obs >= 0).all()
        assert (outcome.obs < env.spec.observation.n).all()
    else:
        low, high = env.spec.observation.bounds()
        inside = (outcome.obs >= low - 1e-5) & (outcome.obs <= high + 1e-5)
        assert inside.all() == (entry.id not in BOUNDS_TOO_TIGHT)


def test_ids_are_unique() -> None:
    names = [name for entry in ENTRIES for name in (entry.id, entry.alias) if name]
    assert len(names) == len(set(names))


IN_GYMNASIUM = [entry for entry in ENTRIES if entry.id in gymnasium.registry]


@pytest.mark.parametrize("entry", IN_GYMNASIUM, ids=lambda entry: entry.id)
def test_marks_and_time_limits_are_gymnasiums(entry) -> None:
    theirs = gymnasium.spec(entry.id)
    if theirs.reward_threshold is not None and entry.id not in OWN_MARK:
        assert entry.solved_at == theirs.reward_threshold
    limit = make(entry.id).spec.max_episode_steps
    assert limit == (theirs.max_episode_steps or OWN_LIMIT[entry.id])
