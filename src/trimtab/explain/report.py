"""``explain`` in words and as data."""

import dataclasses
import math
from typing import Any

from trimtab.configuration import Configuration
from trimtab.explain.geometry import Geometry
from trimtab.explain.rules import Caution, Plan, cautions
from trimtab.spaces import EnvSpec


@dataclasses.dataclass(frozen=True)
class Explanation:
    """All that can be said of a configuration before it is compiled."""

    configuration: Configuration
    geometry: Geometry
    cautions: list[Caution]
    costs: Any = None  # a Costs, where they were counted

    @staticmethod
    def of(configuration: Configuration, spec: EnvSpec | None = None) -> "Explanation":
        """Without costs: arithmetic alone, and no JAX."""
        shape = Geometry.of(configuration, spec)
        return Explanation(configuration, shape, cautions(Plan(configuration, shape, spec)))

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "environment": self.configuration.env_id,
            "algorithm": self.configuration.algorithm_name,
            "geometry": self.geometry.figures(),
            "costs": None if self.costs is None else dataclasses.asdict(self.costs),
            "warnings": [dataclasses.asdict(one) for one in self.cautions],
        }

    def headlines(self) -> list[str]:
        """The three lines that matter most: of the rollout, of the run, and of what to mind."""
        shape = self.geometry
        third = _sees(shape)
        if self.cautions:
            first, more = self.cautions[0], len(self.cautions) - 1
            also = f" ({more} more: trimtab explain)" if more else ""
            third = f"mind: {first.reason}; {first.remedy}{also}"
        return [f"an update: {_update(shape)}", f"the run: {_run(shape)}", third]


def sections(explanation: Explanation) -> list[tuple[str, str]]:
    """Name and text of each fact, in the order of a run."""
    shape = explanation.geometry
    facts = [
        ("rollout", _rollout(shape)),
        ("update", _gradient_steps(shape)),
        ("run", _run(shape)),
        ("discount", _discount(shape)),
        ("advantages", _advantages(shape)),
        ("episodes", _episodes(shape)),
        ("evaluation", _evaluation(shape)),
    ]
    if explanation.costs is not None:
        facts += [("memory", _memory(explanation.costs)), ("work", _work(explanation))]
    return [(name, text) for name, text in facts if text]


def _rollout(shape: Geometry) -> str:
    return (
        f"N = {shape.num_envs:,} lanes × T = {shape.num_steps:,} steps = {shape.batch:,} "
        f"transitions"
    )


def _gradient_steps(shape: Geometry) -> str:
    epochs = f"{shape.epochs} epoch" + "s" * (shape.epochs > 1)
    minibatches = f"{shape.minibatches} minibatch" + "es" * (shape.minibatches > 1)
    times = "once" if shape.epochs == 1 else f"{shape.epochs} times"
    return (
        f"{epochs} × {minibatches} of {shape.minibatch:,g} = {shape.gradient_steps:,} gradient "
        f"steps; each transition is used {times}"
    )


def _update(shape: Geometry) -> str:
    return (
        f"{shape.num_envs:,} lanes × {shape.num_steps:,} steps = {shape.batch:,} transitions, then "
        f"{shape.gradient_steps:,} gradient steps on {shape.minibatch:,g}"
    )


def _run(shape: Geometry) -> str:
    updates = f"{shape.updates:,} update" + "s" * (shape.updates != 1)
    gradient_steps = shape.updates * shape.gradient_steps
    asked = f" ({shape.excess:,} more than asked for)" if shape.excess else ""
    return f"{updates} = {shape.total_steps:,} steps{asked}, {gradient_steps:,} gradient steps"


def _steps(value: float) -> str:
    return "without end" if math.isinf(value) else f"{value:,.0f} steps"


def _sees(shape: Geometry) -> str:
    longest = (
        ""
        if shape.longest_episode is None
        else (f", in episodes of up to {shape.longest_episode:,}")
    )
    return f"the discount sees {_steps(shape.horizon)} ahead{longest}"


def _discount(shape: Geometry) -> str:
    return f"γ = {shape.gamma:g}: rewards count for about {_steps(shape.horizon)}, 1/(1 − γ)"


def _advantages(shape: Geometry) -> str:
    if shape.gae_lambda is None:
        return ""
    text = f"γλ = {shape.gamma * shape.gae_lambda:.4g} reaches {_steps(shape.reach)}"
    if shape.acts_as_lambda is None or shape.reach < 0.2 * shape.num_steps:
        return text
    return (
        f"{text}; in T = {shape.num_steps} it averages {shape.used_reach:.1f}, as λ = "
        f"{shape.acts_as_lambda:.3f} would in an endless rollout"
    )


def _episodes(shape: Geometry) -> str:
    if shape.longest_episode is None or shape.fewest_episodes is None:
        return "no time limit is known"
    return (
        f"up to {shape.longest_episode:,} steps long: a rollout holds at least "
        f"{shape.fewest_episodes:.3g}"
    )


def _evaluation(shape: Geometry) -> str:
    text = f"{shape.evaluations} × {shape.eval_episodes} episodes"
    most = shape.most_evaluation_steps
    if most is None:
        return text
    return f"{text}: at most {most:,} steps, {100 * most / (most + shape.total_steps):.0f}% of all"


def _memory(costs: Any) -> str:
    from trimtab.training.memory import size_words

    return (
        f"rollout {size_words(costs.rollout_bytes)}, learner {size_words(costs.learner_bytes)} "
        f"with {costs.parameters:,} parameters; no replay"
    )


def _work(explanation: Explanation) -> str:
    per_step = explanation.costs.flops_per_step
    total = per_step * explanation.geometry.total_steps
    return f"{per_step:,.0f} floating-point operations a step, {total:.2g} in the run"


def caution_lines(one: Caution) -> list[str]:
    """A caution, what to do, and where that is known from."""
    return [f"! {one.reason}", f"  do:     {one.remedy}", f"  source: {one.source}"]
