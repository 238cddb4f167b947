"""The live measurement: the same learning, and figures that numpy agrees with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.algos.gradients import Gradient, head_loss
from trimtab.algos.ppo import PPO
from trimtab.algos.watched import Watched
from trimtab.collect.fused import collect_fused
from trimtab.envs.make import make
from trimtab.training.step import begin, lanes_mesh, make_step

LANES, STEPS = 8, 16


@pytest.fixture(scope="module")
def env():
    return make("CartPole-v1")


@pytest.fixture(scope="module")
def trained(env):
    """Three updates, each second of which is measured, alone and beside the plain algorithm."""
    ppo = PPO(minibatches=2, epochs=1, hidden_sizes=(8,))
    step = make_step(env, STEPS, 3, None)
    run = begin(ppo, env, LANES, jax.random.key(0))
    return ppo, run, step(ppo, run, 3), step(Watched(ppo, 2), run, 3)


def test_it_learns_the_same(trained):
    _, _, (plain, plain_metrics), (watched, metrics) = trained
    np.testing.assert_array_equal(
        plain.learner.parameters.vector, watched.learner.parameters.vector
    )
    assert set(plain_metrics) < set(metrics)


def test_it_measures_when_it_is_due_and_is_nan_elsewhere(trained):
    metrics = trained[3][1]
    for head in ("actor", "critic", "entropy"):
        found = np.asarray(metrics[f"lab/{head}/cluster_variance"])
        assert np.isfinite(found).tolist() == [True, False, True]


def test_the_figures_are_those_of_the_rollout(env, trained):
    ppo, run, _, (_, metrics) = trained
    actor = ppo.actor(run.learner)
    rollout = collect_fused(ppo, env, actor, run.lanes, run.root, jnp.int32(0), STEPS)[1]
    samples, _ = ppo.prepare(run.learner, rollout)
    network = run.learner.parameters.network()
    one = jax.tree.map(lambda leaf: leaf[0, 0], samples)
    gradient = Gradient.of(head_loss(ppo, "actor"), network, one)
    each = np.asarray(gradient.per_sample(network, samples), np.float64)
    lanes = each.mean(axis=0)
    mean, count = lanes.mean(axis=0), LANES * STEPS
    cluster = ((lanes - mean) ** 2).sum() / (LANES * (LANES - 1))
    rows = each.reshape(count, -1)
    independent = ((rows - mean) ** 2).sum() / (count * (count - 1))
    assert metrics["lab/actor/cluster_variance"][0] == pytest.approx(cluster, rel=1e-3)
    signal = (mean**2).sum() - cluster
    assert metrics["lab/actor/signal"][0] == pytest.approx(signal, rel=1e-2, abs=1e-6)
    assert metrics["lab/actor/effective_samples"][0] == pytest.approx(
        count * independent / cluster, rel=1e-2
    )
    if signal > 0:
        expected = count * cluster / signal
        assert metrics["lab/actor/noise_scale"][0] == pytest.approx(expected, rel=2e-2)


def test_two_devices_measure_what_one_does(env, trained):
    ppo, _, _, (_, alone) = trained
    run = begin(ppo, env, LANES, jax.random.key(0))
    _, shared = make_step(env, STEPS, 1, lanes_mesh(2))(Watched(ppo, 1), run, 1)
    for name in ("cluster_variance", "signal"):
        np.testing.assert_allclose(
            shared[f"lab/critic/{name}"][0], alone[f"lab/critic/{name}"][0], rtol=1e-3
        )
