"""Each rule warns of one configuration and is silent about another, which differs in little."""

import dataclasses
import math

import pytest

from trimtab.configuration import default_configuration
from trimtab.explain.batches import nearest_fitting
from trimtab.explain.caution import Plan
from trimtab.explain.geometry import Geometry
from trimtab.explain.report import Explanation
from trimtab.explain.rules import RULES, cautions
from trimtab.spaces import Box, Dict, Discrete, EnvSpec

UNBOUNDED, UNIT = Box((3,)), Box((3,), (-1.0,), (1.0,))
IMAGE = Box((8, 8, 3), (0.0,), (255.0,), "uint8")
CONTINUOUS = EnvSpec("C-v0", UNBOUNDED, Box((1,), (-1.0,), (1.0,)), max_episode_steps=200)
DISCRETE = EnvSpec("D-v0", UNBOUNDED, Discrete(2), max_episode_steps=200)
ENDLESS = dataclasses.replace(DISCRETE, max_episode_steps=None)
LONG = dataclasses.replace(DISCRETE, max_episode_steps=10_000)


@dataclasses.dataclass(frozen=True)
class FakeCosts:
    needed_bytes: int
    free_bytes: int | None


@dataclasses.dataclass(frozen=True)
class Case:
    settings: dict
    algorithm: str = "ppo"
    spec: EnvSpec | None = DISCRETE
    costs: FakeCosts | None = None
    runs: int = 1

    def explained(self) -> Explanation:
        configuration = default_configuration("", self.algorithm).with_values(self.settings, "test")
        return Explanation.of(configuration.consistent(), self.spec, self.costs, self.runs)


def case(algorithm="ppo", spec: EnvSpec | None = DISCRETE, costs=None, runs=1, **settings) -> Case:
    return Case(settings, algorithm, spec, costs, runs)


SOME = {"num_envs": 16, "num_steps": 64}
CASES = {  # rule: (a configuration that it is for, one that it is not for)
    "empty_minibatches": (
        case(num_envs=2, num_steps=4, minibatches=16),
        case(num_envs=2, num_steps=8, minibatches=16),
    ),
    "indivisible": (case(**SOME, minibatches=3), case(**SOME, minibatches=4)),
    "too_large": (case(costs=FakeCosts(101, 100)), case(costs=FakeCosts(100, 100))),
    "under_one_update": (case(**SOME, total_steps=1023), case(**SOME, total_steps=1024)),
    "few_updates": (case(**SOME, total_steps=49 * 1024), case(**SOME, total_steps=50 * 1024)),
    "one_lane": (case(num_envs=1, num_steps=512), case(num_envs=2, num_steps=256)),
    "small_minibatch": (
        case(num_envs=4, num_steps=31, minibatches=4),
        case(num_envs=4, num_steps=32, minibatches=4),
    ),
    "few_minibatches": (case(minibatches=3, num_envs=30), case(minibatches=4)),
    "many_minibatches": (
        case(num_envs=128, num_steps=64, minibatches=128),
        case(num_envs=128, num_steps=64, minibatches=64),
    ),
    "many_epochs": (case(epochs=21), case(epochs=20)),
    "exceeds_request": (
        case(num_envs=64, num_steps=64, total_steps=4096 * 2 + 1),
        case(num_envs=64, num_steps=64, total_steps=4096 * 60 + 1),
    ),
    "short_rollout": (case(num_steps=16, num_envs=64), case(num_steps=17, num_envs=64)),
    "rollout_under_horizon": (
        case(spec=LONG, gamma=0.998, num_steps=49, num_envs=16, minibatches=4),
        case(spec=LONG, gamma=0.998, num_steps=50, num_envs=16, minibatches=4),
    ),
    "horizon_under_episode": (case(gamma=0.94), case(gamma=0.95)),
    "endless_sum": (case(spec=ENDLESS, gamma=1.0), case(spec=DISCRETE, gamma=1.0)),
    "in_phase": (case(staggered_starts="off"), case(staggered_starts="auto")),
    "unscaled_observations": (
        case(spec=CONTINUOUS),
        case(spec=CONTINUOUS, normalize_observations=True),
    ),
    "no_whole_episode": (
        case("reinforce", episodes="whole", num_steps=199, num_envs=32),
        case("reinforce", episodes="whole", num_steps=200, num_envs=32),
    ),
    "few_episodes": (
        case("reinforce", num_envs=15, num_steps=200),
        case("reinforce", num_envs=16, num_steps=200),
    ),
    "few_eval_episodes": (case(eval_episodes=4), case(eval_episodes=5)),
    "costly_evaluation": (
        case(total_steps=100_000, eval_episodes=100),
        case(total_steps=500_000, eval_episodes=100),
    ),
    "large_learning_rate": (case(learning_rate=0.02), case(learning_rate=0.01)),
}


def rules_of(one: Case) -> set[str]:
    return {caution.rule for caution in one.explained().cautions}


def test_every_rule_is_here() -> None:
    assert {rule.__name__ for rule in RULES} == set(CASES)


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_warns_of_one_and_not_of_the_other(rule: str) -> None:
    warned, silent = CASES[rule]
    assert rule in rules_of(warned)
    assert rule not in rules_of(silent)


@pytest.mark.parametrize("rule", CASES)
def test_a_warning_has_a_reason_a_remedy_and_a_source(rule: str) -> None:
    (found,) = [one for one in CASES[rule][0].explained().cautions if one.rule == rule]
    assert min(map(len, (found.reason, found.source))) > 5
    assert "--" in found.remedy or "more" in found.remedy
    assert not found.reason.endswith(".")


REMEDIED = [
    ("indivisible", {"minibatches": 2}),
    ("indivisible", {"num_envs": 18, "minibatches": 3}),
    ("indivisible", {"num_steps": 63, "minibatches": 3}),
]


@pytest.mark.parametrize(("rule", "changes"), REMEDIED)
def test_what_a_remedy_says_helps(rule: str, changes: dict) -> None:
    warned = CASES[rule][0]
    assert rule not in rules_of(dataclasses.replace(warned, settings=warned.settings | changes))


def test_the_nearest_values_that_divide_are_named() -> None:
    (found,) = [c for c in CASES["indivisible"][0].explained().cautions if c.rule == "indivisible"]
    assert found.remedy == (
        "--minibatches 1 or 2 or 4, or --num-envs 15 or 18, or --num-steps 63 or 66"
    )
    shape = case(num_envs=6, num_steps=10, minibatches=8, gru_units=4).explained().geometry
    assert nearest_fitting(6, 1, shape) == [8]


def test_a_recurrent_policy_with_a_lane_to_a_minibatch() -> None:
    assert "one_lane" in rules_of(case(num_envs=8, minibatches=8, gru_units=4))
    assert "one_lane" not in rules_of(case(num_envs=16, minibatches=8, gru_units=4))


def test_memory_is_that_of_all_runs_at_once() -> None:
    costs = FakeCosts(60, 100)
    assert "too_large" not in rules_of(case(costs=costs))
    assert "too_large" in rules_of(case(costs=costs, runs=2))
    assert "too_large" not in rules_of(case(costs=FakeCosts(10**15, None)))


@pytest.mark.parametrize(
    ("observation", "warned"),
    [
        (UNBOUNDED, True),
        (Box((2,), (-8.0,), (8.0,)), True),
        (UNIT, False),
        (IMAGE, False),  # scaled by the network
        (Discrete(4), False),
        (Dict.of({"near": UNIT, "far": UNBOUNDED}), True),
        (Dict.of({"near": UNIT, "action_mask": Box((2,), (0.0,), (9.0,))}), False),
    ],
)
def test_which_observations_want_scaling(observation, warned: bool) -> None:
    spec = dataclasses.replace(CONTINUOUS, observation=observation)
    assert ("unscaled_observations" in rules_of(case(spec=spec))) == warned


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "reinforce"])
@pytest.mark.parametrize("env", ["", "CartPole-v1", "Acrobot-v1"])
def test_what_is_picked_without_a_word_is_warned_of_in_nothing_grave(algorithm, env) -> None:
    configuration = default_configuration(env, algorithm)
    found = cautions(Plan(configuration, Geometry.of(configuration)))
    grave = {"indivisible", "under_one_update", "few_updates", "one_lane", "small_minibatch"}
    assert not grave & {one.rule for one in found}


def test_gamma_of_one_has_no_end() -> None:
    shape = case(gamma=1.0, gae_lambda=1.0).explained().geometry
    assert math.isinf(shape.horizon)
    assert math.isinf(shape.reach)
    assert "horizon_under_episode" not in rules_of(case(gamma=1.0))
