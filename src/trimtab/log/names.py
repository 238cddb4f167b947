"""What a metric is called elsewhere, and by how much it differs there.

``metrics.jsonl`` always has trimtab's own names and values. A tracker gets those of the library
that its user comes from, so that curves of both lie in one chart: with the name comes the factor
that makes the figure the same quantity. What a library does not record keeps our name.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

# Metrics of the machine: they differ between two runs of one seed.
MEASURED = ("time/", "system/")

NameScheme = Literal["sb3", "cleanrl", "brax", "trimtab"]

# ours -> (theirs, theirs / ours). Stable-Baselines3's and CleanRL's entropies and value losses
# differ in sign and in the factor ½; Brax's entropy loss contains its coefficient, so it has none.
_THEIRS: dict[str, dict[str, tuple[str, float]]] = {
    "sb3": {
        "steps": ("time/total_timesteps", 1),
        "update": ("time/iterations", 1),
        "time/steps_per_second": ("time/fps", 1),
        "time/seconds": ("time/time_elapsed", 1),
        "rollout/return_mean": ("rollout/ep_rew_mean", 1),
        "rollout/length_mean": ("rollout/ep_len_mean", 1),
        "eval/mean": ("eval/mean_reward", 1),
        "eval/length_mean": ("eval/mean_ep_length", 1),
        "train/policy_loss": ("train/policy_gradient_loss", 1),
        "train/value_loss": ("train/value_loss", 2),
        "train/entropy": ("train/entropy_loss", -1),
        "train/approx_kl": ("train/approx_kl", 1),
        "train/clip_fraction": ("train/clip_fraction", 1),
        "train/explained_variance": ("train/explained_variance", 1),
        "train/learning_rate": ("train/learning_rate", 1),
    },
    "cleanrl": {
        "time/steps_per_second": ("charts/SPS", 1),
        "train/learning_rate": ("charts/learning_rate", 1),
        "rollout/return_mean": ("charts/episodic_return", 1),
        "rollout/length_mean": ("charts/episodic_length", 1),
        "eval/mean": ("eval/episodic_return", 1),
        "train/policy_loss": ("losses/policy_loss", 1),
        "train/value_loss": ("losses/value_loss", 1),
        "train/entropy": ("losses/entropy", 1),
        "train/approx_kl": ("losses/approx_kl", 1),
        "train/log_ratio_kl": ("losses/old_approx_kl", 1),
        "train/clip_fraction": ("losses/clipfrac", 1),
        "train/explained_variance": ("losses/explained_variance", 1),
    },
    "brax": {
        "time/steps_per_second": ("training/sps", 1),
        "time/seconds": ("training/walltime", 1),
        "eval/mean": ("eval/episode_reward", 1),
        "eval/std": ("eval/episode_reward_std", 1),
        "eval/length_mean": ("eval/avg_episode_length", 1),
        "rollout/return_mean": ("episode/sum_reward", 1),
        "rollout/length_mean": ("episode/length", 1),
        "train/policy_loss": ("training/policy_loss", 1),
        "train/value_loss": ("training/v_loss", 0.5),
        "train/approx_kl": ("training/kl_mean", 1),
        "train/learning_rate": ("training/learning_rate", 1),
    },
    "trimtab": {},
}


def translated(row: Mapping[str, Any], scheme: NameScheme) -> dict[str, float]:
    """The finite numbers of a row of ``metrics.jsonl``, as the scheme names and scales them."""
    theirs = _THEIRS[scheme]
    found = {}
    for name, value in _numbers(row):
        other, factor = theirs.get(name, (name, 1))
        found[other] = factor * value
    return found


def evaluation_names(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of ``evaluations.jsonl`` with the prefix that tells it from training's metrics."""
    counters = ("update", "steps")
    return {f"eval/{name}": value for name, value in row.items() if name not in counters}


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """NaN says that there was nothing to measure: a gap in the curve is the same in fewer bytes."""
    for name, value in row.items():
        if isinstance(value, (bool, int, float)) and math.isfinite(value):
            yield name, float(value)
