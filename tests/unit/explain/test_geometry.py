"""The arithmetic of a run: by hand, and as training then does it."""

import math

import numpy as np
import pytest

import trimtab
from trimtab.configuration import default_configuration
from trimtab.explain.geometry import Geometry
from trimtab.spaces import Box, Discrete, EnvSpec

SPEC = EnvSpec("Some-v0", Box((2,)), Discrete(2), max_episode_steps=200)


def geometry(algorithm="ppo", spec=SPEC, **settings) -> Geometry:
    configuration = default_configuration("", algorithm).with_values(settings, "test")
    return Geometry.of(configuration, spec)


def test_counts_by_hand() -> None:
    shape = geometry(
        num_envs=8, num_steps=16, epochs=3, minibatches=4, total_steps=1000, eval_episodes=10
    )
    assert (shape.batch, shape.minibatch, shape.gradient_steps) == (128, 32, 12)
    assert (shape.updates, shape.total_steps, shape.excess) == (8, 1024, 24)
    assert (shape.evaluations, shape.fewest_episodes) == (4, 0.64)  # every second update
    assert shape.most_evaluation_steps == 5 * 10 * 200
    assert shape.evaluation_share == pytest.approx(10_000 / 11_024)


def test_horizon_and_discount_are_the_same() -> None:
    assert geometry(horizon=50.0).horizon == pytest.approx(50)
    assert geometry(gamma=0.98).horizon == pytest.approx(50)
    assert math.isinf(geometry(gamma=1.0).horizon)


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (0.9, 0.5), (1.0, 1.0), (0.5, 0)])
@pytest.mark.parametrize("steps", [1, 7, 64])
def test_the_reach_of_an_advantage_is_its_mean_weight(gamma, gae_lambda, steps) -> None:
    """Of step t, rewards t … T − 1 are weighed by (γλ)^k."""
    decay = gamma * gae_lambda
    by_hand = np.mean([sum(decay**k for k in range(steps - t)) for t in range(steps)])
    shape = geometry(gamma=gamma, gae_lambda=gae_lambda, num_steps=steps)
    assert shape.used_reach == pytest.approx(by_hand, rel=1e-9)


def test_a_short_rollout_acts_as_a_lower_lambda() -> None:
    shapes = [geometry(num_steps=steps) for steps in (1, 8, 64, 100_000)]
    acts_as = [shape.acts_as_lambda for shape in shapes]
    assert acts_as == sorted(acts_as)
    assert acts_as[0] == 0  # one step of true reward, whatever was asked for
    assert acts_as[-1] == pytest.approx(0.95, abs=1e-3)


def test_a_recurrent_policy_shuffles_lanes() -> None:
    shape = geometry(num_envs=6, num_steps=32, minibatches=4, gru_units=8)
    assert (shape.shuffled, shape.divides) == (6, False)
    assert geometry(num_envs=6, num_steps=32, minibatches=4).divides


def test_figures_are_plain() -> None:
    figures = geometry().figures()
    assert all(value is None or isinstance(value, bool | int | float) for value in figures.values())


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (trimtab.PPO(epochs=3, minibatches=2), {"total_steps": 300, "eval_every": 2}),
        (trimtab.PPO(minibatches=2, gru_units=4), {"total_steps": 65}),
        (trimtab.A2C(), {"total_steps": 256}),
        (trimtab.REINFORCE(epochs=2), {"total_steps": 200, "eval_count": 1}),
    ],
    ids=["ppo", "recurrent", "a2c", "reinforce"],
)
def test_it_is_what_training_does(algorithm, settings, tmp_path) -> None:
    import dataclasses

    algorithm = dataclasses.replace(algorithm, hidden_sizes=(4,))
    run = trimtab.train(
        "Probe3-v0",
        algorithm,
        run_dir=tmp_path / "run",
        num_envs=4,
        num_steps=16,
        eval_episodes=3,
        **settings,
    )
    shape = Geometry.of(run.configuration, run.spec)
    assert len(run.metrics) == shape.updates
    assert run.steps == shape.total_steps
    assert len(run.evaluations) == shape.evaluations
    assert run.final_evaluation is not None
    assert run.final_evaluation["episodes"] == shape.eval_episodes
    taken = run.learner("latest").optimiser.count
    assert int(taken) == shape.updates * shape.gradient_steps
