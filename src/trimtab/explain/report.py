"""``explain`` in words and as data."""

import dataclasses
import math
from typing import Any

from trimtab.configuration import Configuration
from trimtab.explain.caution import Caution, Plan
from trimtab.explain.geometry import Geometry
from trimtab.explain.rules import cautions
from trimtab.spaces import EnvSpec
from trimtab.training.memory import size_words


@dataclasses.dataclass(frozen=True)
class Explanation:
    """All that can be said of a configuration before it is compiled."""

    configuration: Configuration
    geometry: Geometry
    cautions: list[Caution]
    costs: Any = None  # a Costs, where they were counted

    @staticmethod
    def of(
        configuration: Configuration, spec: EnvSpec | None = None, costs: Any = None, runs: int = 1
    ) -> "Explanation":
        """By arithmetic alone. ``spec`` is of the environment as the run sees it."""
        shape = Geometry.of(configuration, spec, runs)
        plan = Plan(configuration, shape, spec, costs)
        return Explanation(configuration, shape, cautions(plan), costs)

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "environment": self.configuration.env_id or None,
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
            also = f" ({more} more: see trimtab explain)" if more else ""
            third = f"mind: {first.reason}; {first.remedy}{also}"
        return [f"an update: {_update(shape)}", f"the run: {_run(shape)}", third]


def sections(explanation: Explanation) -> list[tuple[str, str]]:
    """Name and text of each fact, in the order of a run."""
    shape = explanation.geometry
    facts = [
        ("rollout", _rollout(shape)),
        ("update", _gradient_steps(shape)),
        ("run", _run(shape)),
        ("runs", _runs(shape)),
        ("discount", _discount(shape)),
        ("advantages", _advantages(shape)),
        ("episodes", _episodes(shape, known=explanation.costs is not None)),
        ("evaluation", _evaluation(shape)),
    ]
    if explanation.costs is not None:
        facts += [("memory", _memory(explanation)), ("work", _work(explanation))]
    return [(name, text) for name, text in facts if text]


def _rollout(shape: Geometry) -> str:
    return (
        f"N = {shape.num_envs:,} lanes × T = {shape.num_steps:,} steps = {shape.batch:,} "
        f"transitions{_to_their_ends(shape)}"
    )


def _to_their_ends(shape: Geometry) -> str:
    if not shape.whole:
        return ""
    return ", and on to the end of the episodes; what a lane takes beyond its T comes off the next"


def _gradient_steps(shape: Geometry) -> str:
    epochs = _counted(shape.epochs, "epoch")
    minibatches = f"{shape.minibatches} minibatch" + "es" * (shape.minibatches > 1)
    times = "once" if shape.epochs == 1 else f"{shape.epochs} times"
    return (
        f"{epochs} × {minibatches} of {_size(shape)} = "
        f"{_counted(shape.gradient_steps, 'gradient step')}; each transition is used {times}"
    )


def _size(shape: Geometry) -> str:
    """Of a minibatch; a recurrent policy's holds whole lanes."""
    if not shape.recurrent:
        return f"{shape.minibatch_words}"
    return f"{shape.minibatch_words} ({shape.num_envs / shape.minibatches:,g} whole lanes)"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + "s" * (number != 1)


def _update(shape: Geometry) -> str:
    return (
        f"{shape.num_envs:,} lanes × {shape.num_steps:,} steps = {shape.batch:,} transitions; "
        f"{_counted(shape.gradient_steps, 'gradient step')} of {shape.minibatch_words}"
    )


def _run(shape: Geometry) -> str:
    asked = f" ({shape.excess:,} more than asked for)" if shape.excess else ""
    if shape.whole and shape.most_total_steps is not None:
        more = shape.most_total_steps - shape.total_steps
        asked += f" and up to {more:,} to end the last episodes"
    return (
        f"{_counted(shape.updates, 'update')} = {shape.total_steps:,} steps{asked}, "
        f"{_counted(shape.updates * shape.gradient_steps, 'gradient step')}"
    )


def _runs(shape: Geometry) -> str:
    if shape.runs == 1:
        return ""
    return f"{shape.runs:,} at once, each as above: {shape.runs * shape.total_steps:,} steps in all"


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


def _episodes(shape: Geometry, known: bool) -> str:
    if shape.longest_episode is None or shape.fewest_episodes is None:
        return "without a time limit" if known else ""
    return (
        f"up to {shape.longest_episode:,} steps long: a rollout holds at least "
        f"{shape.fewest_episodes:.3g}"
    )


def _evaluation(shape: Geometry) -> str:
    text = (
        f"{shape.evaluations:,} while training and one of the best, "
        f"{_counted(shape.eval_episodes, 'episode')} each"
    )
    most, share = shape.most_evaluation_steps, shape.evaluation_share
    if most is None or share is None:
        return text
    return f"{text}: at most {most:,} steps, {100 * share:.2g}% of all that are played"


def _memory(explanation: Explanation) -> str:
    costs, runs = explanation.costs, explanation.geometry.runs
    of_each = "of each run: " if runs > 1 else ""
    replay = f"replay {size_words(costs.replay_bytes)}" if costs.replay_bytes else "no replay"
    whole = "" if costs.free_bytes is None else f" of {size_words(costs.free_bytes)} that are free"
    return (
        f"{of_each}rollout {size_words(costs.rollout_bytes)}, learner "
        f"{size_words(costs.learner_bytes)} with {costs.parameters:,} parameters, {replay}; while "
        f"learning about {size_words(runs * costs.needed_bytes)} in all{whole}"
    )


def _work(explanation: Explanation) -> str:
    per_step = explanation.costs.flops_per_step
    total = per_step * explanation.geometry.total_steps
    return (
        f"{per_step:,.0f} floating-point operations a step (the networks', acting and learning), "
        f"{total:.2g} in the run"
    )


def caution_lines(one: Caution) -> list[tuple[str, str]]:
    """A caution, what to do, and where that is known from, each with its mark."""
    return [("! warning", one.reason), ("  do", one.remedy), ("  source", one.source)]
