"""Rules about rollouts and minibatches: how much data a gradient step and an update see."""

import dataclasses
import math

from trimtab.explain.caution import (
    ANDRYCHOWICZ,
    DETAILS,
    ENGSTROM,
    MAYOR,
    NOISE_SCALE,
    Caution,
    Plan,
)
from trimtab.explain.geometry import Geometry
from trimtab.training.config import nearest_divisors
from trimtab.training.memory import size_words

SMALLEST_MINIBATCH = 32
FEWEST_MINIBATCHES, MOST_MINIBATCHES = 4, 64
FEWEST_UPDATES = 50
FEWEST_LANES = 8  # that are advised
MOST_EPOCHS = 20
LARGEST_EXCESS = 0.1


def empty_minibatches(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.minibatches <= shape.shuffled:
        return None
    return Caution(
        "empty_minibatches",
        f"{shape.minibatches:,} minibatches are more than {_what_is_shuffled(shape)}: some would "
        f"be empty, and `trimtab train` refuses it",
        f"--minibatches {nearest_divisors(shape.shuffled, FEWEST_MINIBATCHES)[-1]}",
        "every transition is used exactly once an epoch",
    )


def indivisible(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.divides or shape.minibatches > shape.shuffled:
        return None
    near = nearest_divisors(shape.shuffled, shape.minibatches)
    lanes = nearest_fitting(shape.num_envs, 1 if shape.recurrent else shape.num_steps, shape)
    steps = [] if shape.recurrent else nearest_fitting(shape.num_steps, shape.num_envs, shape)
    remedies = [("--minibatches", near), ("--num-envs", lanes), ("--num-steps", steps)]
    return Caution(
        "indivisible",
        f"{_what_is_shuffled(shape)} cannot be cut into {shape.minibatches:,} equal minibatches: "
        f"`trimtab train` refuses it",
        ", or ".join(f"{flag} {_or(values)}" for flag, values in remedies if values),
        "every transition is used exactly once an epoch",
    )


def nearest_fitting(number: int, times: int, shape: Geometry) -> list[int]:
    """The numbers below and above, whose product with ``times`` minibatches divide."""
    multiple = shape.minibatches // math.gcd(times, shape.minibatches)
    below = number // multiple * multiple
    return [value for value in (below, below + multiple) if value > 0]


def _what_is_shuffled(shape: Geometry) -> str:
    if shape.recurrent:
        return f"the {shape.num_envs:,} lanes of a recurrent policy"
    return f"{shape.num_envs:,} × {shape.num_steps:,} = {shape.batch:,} transitions"


def _or(values: list[int]) -> str:
    return " or ".join(map(str, values))


def too_large(plan: Plan) -> Caution | None:
    costs, shape = plan.costs, plan.geometry
    if costs is None or costs.free_bytes is None:
        return None
    needed = shape.runs * costs.needed_bytes
    if needed <= costs.free_bytes:
        return None
    lanes = shape.num_envs * costs.free_bytes / needed / 2
    return Caution(
        "too_large",
        f"training needs about {size_words(needed)} of memory for a rollout and what "
        f"is made of it, and {size_words(costs.free_bytes)} is free",
        f"--num-envs {_power_of_two(lanes)}",
        "this machine",
    )


def under_one_update(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.requested_steps >= shape.batch:
        return None
    return Caution(
        "under_one_update",
        f"one rollout is {shape.batch:,} steps, more than the {shape.requested_steps:,} that were "
        f"asked for: the run is a single update",
        f"--total-steps {FEWEST_UPDATES * shape.batch} or more, or fewer --num-envs",
        "arithmetic",
    )


def few_updates(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.updates >= FEWEST_UPDATES or shape.requested_steps < shape.batch:
        return None
    lanes = _power_of_two(shape.requested_steps / (FEWEST_UPDATES * shape.num_steps))
    return Caution(
        "few_updates",
        f"the run has only {shape.updates} updates: a policy improves from update to update, and "
        f"{shape.num_envs} lanes spend the steps on few of them",
        (f"--num-envs {lanes}, or " if lanes >= FEWEST_LANES else "")
        + f"--total-steps {FEWEST_UPDATES * shape.batch}",
        MAYOR,
    )


def exceeds_request(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.requested_steps < shape.batch or shape.excess <= (
        LARGEST_EXCESS * shape.requested_steps
    ):
        return None
    whole = shape.total_steps - shape.batch
    return Caution(
        "exceeds_request",
        f"whole updates make it {shape.total_steps:,} steps, {shape.excess:,} more than asked for",
        f"--total-steps {whole} or {shape.total_steps}, or a smaller rollout",
        "arithmetic",
    )


def one_lane(plan: Plan) -> Caution | None:
    shape = plan.geometry
    of_each = shape.num_envs / (shape.minibatches if shape.recurrent else 1)
    if of_each > 1:
        return None
    fewer = shape.recurrent and shape.num_envs > 1
    return Caution(
        "one_lane",
        "every minibatch is from a single environment: its transitions follow one another and tell "
        "much the same",
        f"--minibatches {max(1, shape.num_envs // 4)} or fewer, or more --num-envs"
        if fewer
        else f"--num-envs {FEWEST_LANES} or more, with a shorter --num-steps",
        MAYOR,
    )


def small_minibatch(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.minibatch >= SMALLEST_MINIBATCH:
        return None
    fitting = max(1, shape.batch // SMALLEST_MINIBATCH)
    smaller = [d for d in nearest_divisors(shape.batch, fitting) if d <= fitting]
    remedy = f"--minibatches {smaller[-1]}" if smaller and shape.minibatches > 1 else ""
    return Caution(
        "small_minibatch",
        f"a gradient step sees {shape.minibatch_words} transitions: its direction is mostly noise, "
        f"and so are the mean and deviation with which their advantages are normalised",
        remedy or f"more --num-envs or --num-steps: {SMALLEST_MINIBATCH} transitions or more",
        NOISE_SCALE,
    )


def few_minibatches(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if not _has_minibatches(plan) or shape.minibatches >= FEWEST_MINIBATCHES:
        return None
    if shape.batch < FEWEST_MINIBATCHES * SMALLEST_MINIBATCH:
        return None  # the rollout is too small for more of them
    return Caution(
        "few_minibatches",
        f"{shape.minibatches} gradient step{'s' * (shape.minibatches > 1)} an epoch makes little "
        f"of a rollout of {shape.batch:,} transitions",
        f"--minibatches {FEWEST_MINIBATCHES} or more",
        DETAILS,
    )


def many_minibatches(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if not _has_minibatches(plan) or shape.minibatches <= MOST_MINIBATCHES:
        return None
    return Caution(
        "many_minibatches",
        f"{shape.minibatches} gradient steps an epoch move the policy far from the one that acted: "
        f"the later ones work on clipped ratios and stale advantages",
        f"--minibatches {MOST_MINIBATCHES} or fewer, or a target_kl",
        ENGSTROM,
    )


def many_epochs(plan: Plan) -> Caution | None:
    shape = plan.geometry
    if shape.epochs <= MOST_EPOCHS:
        return None
    return Caution(
        "many_epochs",
        f"each transition is used {shape.epochs} times, and all but the first passes are for a "
        f"policy that has moved on",
        "--epochs 3 to 10, or a target_kl that ends the passes early",
        ANDRYCHOWICZ,
    )


def _has_minibatches(plan: Plan) -> bool:
    """Whether their number is a setting of the algorithm at all."""
    fields = {field.name for field in dataclasses.fields(plan.algorithm)}
    return "minibatches" in fields


def _power_of_two(at_most: float) -> int:
    return 2 ** int(math.log2(max(1.0, at_most)))
