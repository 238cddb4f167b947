"""The proofs of the seam: one algorithm, any collector, nothing carried that can be derived."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.algos.ppo import PPO
from trimtab.collect.episodes import Finished, start_lanes, step_lanes
from trimtab.collect.fused import collect_fused
from trimtab.envs.make import make
from trimtab.keys import Purpose, lane_streams, stream
from trimtab.ops.across import Across
from trimtab.training.seeds import begin_seeds, make_seeds_step, seeds_mesh, stacked
from trimtab.training.step import begin, lanes_mesh, make_step, one_update
from trimtab.types import Rollout

NUM_ENVS, NUM_STEPS = 4, 16


@pytest.fixture(params=["CartPole-v1", "Pendulum-v1"])
def env(request):
    return make(request.param)


@pytest.fixture
def ppo():
    return PPO(minibatches=2, epochs=2, normalize_observations=True, learning_rate=1e-2)


def assert_same(left, right):
    """Bit for bit."""
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(data(a), data(b)), left, right)


def data(leaf):
    typed = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if typed else leaf


def collect_in_a_plain_loop(algorithm, env, actor, lanes, root, update, num_steps):
    """What ``collect_fused`` does, as a person would write it: one step after another."""
    act = jax.jit(jax.vmap(algorithm.act, in_axes=(None, 0, 0, 0)))
    remember = jax.jit(jax.vmap(algorithm.after_step, in_axes=(None, 0, 0, 0)))
    first = lanes.memory
    step = jax.jit(lambda *arguments: step_lanes(env, *arguments))
    noise = [
        algorithm.noise(actor, key, num_steps)
        for key in lane_streams(root, Purpose.ACT, update, lanes.index)
    ]
    step_keys = [
        jax.random.split(key, num_steps)
        for key in lane_streams(root, Purpose.STEP, update, lanes.index)
    ]
    reset_keys = lane_streams(root, Purpose.RESET, update, lanes.index)
    rows = []
    for t in range(num_steps):
        noise_now = jnp.stack([lane[t] for lane in noise])
        action, extras, memory = act(actor, lanes.memory, lanes.obs, noise_now)
        obs = lanes.obs
        lanes, after = step(
            lanes, action, jnp.stack([lane[t] for lane in step_keys]), reset_keys, jnp.int32(t)
        )
        ended = after.terminated | after.truncated
        lanes = lanes._replace(memory=remember(actor, memory, after.reward, ended))
        rows.append(
            Rollout(
                obs, action, after.reward, after.terminated, after.truncated, after.next_obs, extras
            )
        )
    rollout = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    return lanes, rollout._replace(memory=first)


def test_fused_equals_a_plain_loop_bit_for_bit(env, ppo):
    root = jax.random.key(3)
    fused = looped = begin(ppo, env, NUM_ENVS, root)
    collect = jax.jit(
        lambda actor, lanes, update: collect_fused(ppo, env, actor, lanes, root, update, NUM_STEPS)
    )
    learn = jax.jit(ppo.update)
    for update in range(6):
        key = stream(root, Purpose.SHUFFLE, update)
        lanes, rollout = collect(ppo.actor(fused.learner), fused.lanes, jnp.int32(update))
        fused = fused._replace(lanes=lanes, learner=learn(fused.learner, rollout, key)[0])
        lanes, rollout = collect_in_a_plain_loop(
            ppo, env, ppo.actor(looped.learner), looped.lanes, root, update, NUM_STEPS
        )
        looped = looped._replace(lanes=lanes, learner=learn(looped.learner, rollout, key)[0])
    assert_same(fused, looped)


def test_two_half_runs_of_lanes_joined_equal_one(env, ppo):
    root = jax.random.key(0)
    learner = ppo.init(root, env.spec)
    actor = ppo.actor(learner)

    def collect(first, last):
        index = jnp.arange(first, last, dtype=jnp.int32)
        lanes = start_lanes(ppo, env, actor, root, index)
        return collect_fused(ppo, env, actor, lanes, root, jnp.int32(0), NUM_STEPS)[1]

    # Halves of a whole SIMD register: XLA computes a remainder of lanes with other instructions.
    left, right = collect(0, 16), collect(16, 32)
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), left, right)
    assert_same(joined, collect(0, 32))


def test_seeds_and_floats_can_be_mapped_and_each_equals_its_own_run(env):
    seeds, rates = jnp.arange(3), jnp.array([1e-3, 3e-3, 1e-2])

    def one(seed, rate):
        ppo = PPO(minibatches=2, learning_rate=rate)
        run = begin(ppo, env, NUM_ENVS, jax.random.key(seed))
        for _ in range(2):
            run, _ = one_update(ppo, env, NUM_STEPS, run)
        return run.learner.parameters.vector

    together = jax.jit(lambda s, r: jax.lax.map(lambda x: one(*x), (s, r)))(seeds, rates)
    ppos = jax.vmap(lambda rate: PPO(minibatches=2, learning_rate=rate))(rates)
    starts = [begin(PPO(minibatches=2), env, NUM_ENVS, jax.random.key(int(s))) for s in seeds]
    runs = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    step = jax.jit(jax.vmap(lambda ppo, run: one_update(ppo, env, NUM_STEPS, run)))
    for _ in range(2):
        runs, _ = step(ppos, runs)
    np.testing.assert_allclose(runs.learner.parameters.vector, together, rtol=1e-3, atol=1e-4)
    assert not np.allclose(together[0], together[1])


def test_mean_of_per_sample_gradients_is_the_batch_gradient(env, ppo):
    root = jax.random.key(0)
    run = begin(ppo, env, NUM_ENVS, root)
    _, rollout = collect_fused(
        ppo, env, ppo.actor(run.learner), run.lanes, root, jnp.int32(0), NUM_STEPS
    )
    samples, _ = ppo.prepare(run.learner, rollout)
    samples = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples)
    parameters = run.learner.parameters
    batch_gradient, _ = ppo.gradient(parameters, samples)
    each = jax.vmap(jax.grad(ppo.loss), in_axes=(None, 0))(parameters.network(), samples)
    flat = jnp.concatenate(
        [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(each)], axis=1
    )
    np.testing.assert_allclose(flat.mean(axis=0), batch_gradient, rtol=1e-3, atol=1e-5)


def test_the_policy_ratio_is_one_on_the_first_minibatch(env, ppo):
    root = jax.random.key(0)
    run = begin(ppo, env, NUM_ENVS, root)
    for _ in range(3):  # so that the statistics have moved
        run, _ = jax.jit(lambda run: one_update(ppo, env, NUM_STEPS, run))(run)
    _, rollout = collect_fused(
        ppo, env, ppo.actor(run.learner), run.lanes, root, run.update, NUM_STEPS
    )
    samples, _ = ppo.prepare(run.learner, rollout)
    network = run.learner.parameters.network()
    terms = jax.vmap(jax.vmap(ppo.terms, (None, 0)), (None, 0))(network, samples)
    np.testing.assert_allclose(terms.approx_kl, 0.0, atol=1e-6)
    np.testing.assert_allclose(-terms.policy, samples.advantage, rtol=1e-5, atol=1e-6)
    assert not terms.clipped.any()


def test_two_devices_learn_what_one_does(env):
    """Shuffles differ by device: compare with one minibatch and one epoch, where none matters."""
    ppo = PPO(minibatches=1, epochs=1, normalize_observations=True)
    runs = []
    for devices in (1, 2):
        mesh = lanes_mesh(devices)
        step = make_step(env, NUM_STEPS, 3, mesh)
        run, metrics = step(ppo, begin(ppo, env, NUM_ENVS, jax.random.key(0)), 3)
        runs.append((run, metrics))
    (one, one_metrics), (two, two_metrics) = runs
    np.testing.assert_allclose(
        one.learner.parameters.vector, two.learner.parameters.vector, rtol=1e-3, atol=1e-5
    )
    np.testing.assert_allclose(
        one.learner.observations.mean, two.learner.observations.mean, rtol=1e-4, atol=1e-5
    )
    for name, values in one_metrics.items():
        np.testing.assert_allclose(values, two_metrics[name], rtol=2e-2, atol=1e-4, err_msg=name)


def test_many_updates_in_one_call_equal_one_call_each(env, ppo):
    step = make_step(env, NUM_STEPS, 5, None)
    start = begin(ppo, env, NUM_ENVS, jax.random.key(1))
    together, metrics = step(ppo, start, 5)
    alone = start
    for update in range(5):
        alone, one = step(ppo, alone, 1)
        for name, values in metrics.items():
            np.testing.assert_array_equal(values[update], one[name][0], err_msg=name)
    assert_same(together, alone)


def test_floats_do_not_recompile(env):
    step = make_step(env, NUM_STEPS, 1, None)
    run = begin(PPO(), env, NUM_ENVS, jax.random.key(1))
    for rate in (1e-3, 1e-4, 3e-4):
        algorithm = dataclasses.replace(PPO(), learning_rate=rate, gamma=0.9, clip_range=0.1)
        run, _ = step(algorithm, run, 1)
    assert step._cache_size() == 1


def test_episode_totals_add_up_over_updates(env, ppo):
    run = begin(ppo, env, NUM_ENVS, jax.random.key(0))
    run, metrics = make_step(env, 100, 4, None)(ppo, run, 4)
    lengths = metrics["rollout/length_mean"] * metrics["rollout/episodes"]
    in_finished = float(np.nansum(lengths))
    assert in_finished + float(run.lanes.episode_length.sum()) == 4 * 100 * NUM_ENVS


def test_no_episode_gives_nan_and_not_zero():
    metrics = Finished.none(3).metrics(Across())
    assert metrics["rollout/episodes"] == 0
    assert all(np.isnan(metrics[f"rollout/return_{what}"]) for what in ("mean", "min", "max"))


@pytest.mark.parametrize("devices", [1, 2])
def test_each_of_many_seeds_equals_its_own_run(env, ppo, devices):
    seeds = [3, 0, 7, 4]
    ppos = stacked([ppo] * len(seeds))
    runs, metrics = make_seeds_step(env, NUM_STEPS, 2, seeds_mesh(devices))(
        ppos, begin_seeds(ppos, env, NUM_ENVS, jnp.asarray(seeds, jnp.uint32)), 2
    )
    alone, alone_metrics = make_step(env, NUM_STEPS, 2, None)(
        ppo, begin(ppo, env, NUM_ENVS, jax.random.key(7)), 2
    )
    np.testing.assert_allclose(
        runs.learner.parameters.vector[2], alone.learner.parameters.vector, rtol=1e-3, atol=1e-4
    )
    for name, values in alone_metrics.items():
        np.testing.assert_allclose(metrics[name][:, 2], values, rtol=2e-2, atol=1e-3, err_msg=name)
