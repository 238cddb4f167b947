"""How wrong the expected gradient is, and from what: exactly in tabular tasks, else measured.

Two true gradients are meant. ``discounted`` is the gradient of the discounted return from the first
state on. ``practice`` weighs states as often as lanes are in them, without γ^t: it is what every
implementation follows, and it is no function's gradient (Nota & Thomas 2020). Bias is counted from
the second, source by source, each added to those before it:

    value function   λ-returns without end that trust the learned critic, not the exact one
    truncation       sums that end with the rollout, T steps at most, and with the clock
    start            lanes that begin where they do, and not at a stationary moment
"""

import dataclasses
from typing import Any, get_args

import numpy as np

from trimtab.envs.tabular import TabularEnv
from trimtab.lab import exact
from trimtab.lab.exact import Chain, Weights
from trimtab.lab.plan import Split, Start

SOURCES = ("value function", "truncation", "start")


@dataclasses.dataclass(frozen=True)
class Estimator:
    """What decides the expectation of a gradient, apart from the policy and the critic."""

    split: Split
    discount: float
    trace: float
    start: Start
    warm_up: int


@dataclasses.dataclass(frozen=True)
class ExactBias:
    """Of one head: the true gradients, the expected one, and the stages between."""

    practice: np.ndarray
    discounted: np.ndarray
    stages: dict[str, np.ndarray]  # the expected gradient with this source and those before it

    @property
    def expected(self) -> np.ndarray:
        return self.stages[SOURCES[-1]]

    def shares(self) -> dict[str, float]:
        """|what each source adds| / |true gradient|, and that of their sum."""
        scale = max(float(np.linalg.norm(self.practice)), 1e-300)
        before, shares = self.practice, {}
        for name in SOURCES:
            shares[name] = float(np.linalg.norm(self.stages[name] - before)) / scale
            before = self.stages[name]
        shares["total"] = float(np.linalg.norm(self.expected - self.practice)) / scale
        return shares


@dataclasses.dataclass(frozen=True)
class TabularSubject:
    """A network in a tabular task, as dynamic programming sees it."""

    chain: Chain
    network: Any
    critic: np.ndarray

    @staticmethod
    def of(env: TabularEnv, network: Any) -> "TabularSubject":
        states, actions = env.expected_reward.shape
        chain = Chain(env, exact.policy_table(network, states, actions))
        return TabularSubject(chain, network, exact.value_table(network, states, actions))

    def bias(self, head: str, used: tuple[bool, ...], estimator: Estimator) -> ExactBias:
        """The exact bias of one head's gradient."""

        def gradient(weights: Weights) -> np.ndarray:
            return exact.gradient(head, used, self.network, weights)

        practice, discounted = self.truths(estimator.discount)
        stages = {name: gradient(weights) for name, weights in self.stages(estimator).items()}
        return ExactBias(gradient(practice), gradient(discounted), stages)

    def starts(self, head: str, used: tuple[bool, ...], estimator: Estimator) -> dict[str, float]:
        """|what each way to start lanes adds| / |true gradient|, with the same T and λ."""
        chain = self.chain
        settings = (estimator.split.steps, estimator.discount, estimator.trace, self.critic)

        def gradient(weights: Weights) -> np.ndarray:
            return exact.gradient(head, used, self.network, weights)

        scale = max(float(np.linalg.norm(gradient(self.truths(estimator.discount)[0]))), 1e-300)
        without = gradient(chain.estimated_weights(chain.stationary(), *settings))
        shares = {}
        for start in get_args(Start):
            lanes = start_lanes(chain, dataclasses.replace(estimator, start=start))
            there = gradient(chain.estimated_weights(lanes, *settings))
            shares[start] = float(np.linalg.norm(there - without)) / scale
        return shares

    def truths(self, discount: float) -> tuple[Weights, Weights]:
        """The weights of the practice form and of the discounted form."""
        chain = self.chain
        states = chain.stationary().sum(axis=0)
        practice = chain.true_weights(states, discount, self.critic)
        return practice, chain.true_weights(chain.discounted(discount), discount, self.critic)

    def stages(self, estimator: Estimator) -> dict[str, Weights]:
        chain, split = self.chain, estimator.split
        stationary = chain.stationary()
        states = stationary.sum(axis=0)
        endless = chain.limit_advantages(estimator.discount, estimator.trace, self.critic)
        settings = (split.steps, estimator.discount, estimator.trace, self.critic)
        return {
            "value function": Weights(states[:, None] * chain.policy * endless, states),
            "truncation": chain.estimated_weights(stationary, *settings),
            "start": chain.estimated_weights(start_lanes(chain, estimator), *settings),
        }

    def success(self) -> float:
        """The expected return of a whole episode."""
        return self.chain.expected_return()


def start_lanes(chain: Chain, estimator: Estimator) -> np.ndarray:
    """The distribution [L, S] of the lanes that the engine collects from."""
    if estimator.start == "fresh":
        return chain.fresh()
    lanes = chain.carried(estimator.warm_up)
    if estimator.start == "carried":
        return lanes
    total = np.zeros_like(lanes)
    for _ in range(estimator.warm_up):
        total += lanes
        lanes = chain.one_step_later(lanes)
    return total / estimator.warm_up
