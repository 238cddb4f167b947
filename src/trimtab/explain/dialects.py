"""The words of Brax, Stable-Baselines3 and CleanRL for what is set here. No JAX.

Each library has words for numbers that mean the same here, up to a factor, and words for the shape
of a run, which mean something else in each. The second kind are functions. Every fact is from the
libraries' own source or pages: Brax 0.14 ``ppo.train``, SB3 2.x ``PPO`` with the RL Zoo's words,
CleanRL's ``ppo.py``.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from trimtab.configuration import Configuration
from trimtab.errors import SettingError
from trimtab.training.config import batch_size, eval_cadence, nearest_divisors, num_updates

Values = dict[str, Any]
REQUIRED = object()


def same(value: Any) -> Any:
    return value


@dataclasses.dataclass(frozen=True)
class Word:
    """A word of theirs for one setting of ours."""

    theirs: str
    ours: str
    default: Any  # theirs
    read: Callable[[Any], Any] = same  # their value as ours
    write: Callable[[Any], Any] = same


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a library says it."""

    title: str
    words: tuple[Word, ...]
    shape: Mapping[str, Any]  # their words for the shape of a run, with their defaults
    # Both also take care of words whose meaning depends on another: of all that is given, or
    # defaults, what is ours, with remarks; and the other way round.
    read_shape: Callable[[Values], tuple[Values, list[str]]]
    write_shape: Callable[[Configuration], tuple[Values, list[str]]]
    # Words that have no counterpart, and why that is or what stands for them.
    untold: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # What the library always does, whatever is set.
    always: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def doubled(value: Any) -> Any:
    return 2 * value


def halved(value: Any) -> Any:
    return value / 2


def on_off(on: str) -> tuple[Callable[[bool], str], Callable[[str], bool]]:
    """A switch of theirs that is a choice here."""
    return (lambda value: on if value else "off"), (lambda value: value == on)


NORMALISED = on_off("minibatch")


def opposite(value: bool) -> bool:
    return not value


# ------------------------------------------------------------------------------------------ Brax


def read_brax(given: Values) -> tuple[Values, list[str]]:
    """``batch_size`` counts segments of ``unroll_length`` steps in a minibatch.

    U = batch_size · num_minibatches / num_envs segments follow one another in each lane, and one
    iteration has S = batch_size · num_minibatches · unroll_length · action_repeat steps of the
    environment. Of E = max(num_evals − 1, 1) stretches with R resets each, every one has
    n = ⌈num_timesteps / (E R S)⌉ iterations.
    """
    lanes, steps, segments = given["num_envs"], given["unroll_length"], given["batch_size"]
    minibatches, repeat = given["num_minibatches"], given["action_repeat"]
    if segments * minibatches % lanes:
        raise SettingError(
            f"brax: batch_size × num_minibatches = {segments} × {minibatches} must be a multiple of"
            f" num_envs = {lanes}, or Brax refuses it: batch_size counts segments of unroll_length "
            f"steps in a minibatch. For one segment of each lane give batch_size = "
            f"{max(1, lanes // minibatches)}."
        )
    unrolls = segments * minibatches // lanes
    per_iteration = segments * minibatches * steps
    stretches = max(given["num_evals"] - 1, 1) * max(given["num_resets_per_eval"], 1)
    each = -(-given["num_timesteps"] // (stretches * per_iteration * repeat))
    updates = stretches * each
    evaluations = max(given["num_evals"] - 1, 1)
    limit = given["episode_length"]
    ours = {
        "num_envs": lanes,
        "num_steps": unrolls * steps,
        "minibatches": minibatches,
        "total_steps": updates * per_iteration,
        "eval_every": updates // evaluations,
        "action_repeat": repeat,
        # Brax counts steps of the environment here, too.
        "max_episode_steps": None if limit is None else -(-limit // repeat),
    }
    notes = []
    if segments == lanes * steps and unrolls > 1:
        meant = f"batch_size = {lanes // minibatches}" if lanes % minibatches == 0 else "another"
        notes.append(
            f"batch_size = num_envs × unroll_length, as a widespread guide has it, is not what "
            f"Brax means: it counts segments of {steps} steps in a minibatch. This makes "
            f"{per_iteration:,} transitions an iteration; for {lanes * steps:,} give {meant}."
        )
    whole = updates * per_iteration * repeat
    if whole > given["num_timesteps"]:
        notes.append(
            f"Brax rounds num_timesteps = {given['num_timesteps']:,} up to {whole:,} steps of the "
            f"environment: {updates:,} iterations of {per_iteration * repeat:,}."
        )
    if unrolls > 1:
        notes.append(
            f"batch_size = {segments} segments × {minibatches} minibatches are {unrolls} unrolls of"
            f" {steps} steps in each lane. Brax ends its advantages after each; here they go on "
            f"through all {unrolls * steps} steps."
        )
    if repeat > 1:
        notes.append(f"Steps here are the agent's: each is {repeat} of the environment.")
    return ours, notes


def write_brax(configuration: Configuration) -> tuple[Values, list[str]]:
    training, algorithm = configuration.training, configuration.algorithm
    lanes, minibatches = training.num_envs, algorithm.minibatches
    unrolls = next(
        (
            u
            for u in range(1, training.num_steps + 1)
            if training.num_steps % u == 0 and lanes * u % minibatches == 0
        ),
        None,
    )
    if unrolls is None:
        raise SettingError(
            f"brax: {lanes} lanes × {training.num_steps} steps in {minibatches} minibatches cannot "
            f"be said in whole segments. Give a num_envs that is a multiple of {minibatches}."
        )
    updates, cadence, notes = num_updates(training), eval_cadence(training), []
    evaluations = updates // cadence
    if updates % cadence:
        evaluations = 1
        notes.append("Brax's evaluations divide a run evenly: there is one, at the end.")
    theirs = {
        "num_envs": lanes,
        "unroll_length": training.num_steps // unrolls,
        "batch_size": lanes * unrolls // minibatches,
        "num_minibatches": minibatches,
        "action_repeat": training.action_repeat,
        "num_evals": evaluations + 1,
        "num_resets_per_eval": 0,
        "episode_length": None
        if training.max_episode_steps is None
        else training.max_episode_steps * training.action_repeat,
        "num_timesteps": updates * batch_size(training) * training.action_repeat,
    }
    return theirs, notes


BRAX = Dialect(
    "Brax ppo.train",
    (
        Word("num_updates_per_batch", "epochs", 2),
        Word("learning_rate", "learning_rate", 1e-4),
        Word("entropy_cost", "entropy_coefficient", 1e-4),
        Word("discounting", "gamma", 0.9),
        Word("gae_lambda", "gae_lambda", 0.95),
        Word("clipping_epsilon", "clip_range", 0.3),
        Word("clipping_epsilon_value", "value_clip_range", None),
        Word("vf_loss_coefficient", "value_coefficient", 0.5),
        Word("max_grad_norm", "max_grad_norm", None),
        Word("normalize_observations", "normalize_observations", False),
        Word("normalize_advantage", "advantage_normalization", True, *NORMALISED),
        Word(
            "reward_scaling",
            "reward_scale",
            1.0,
            lambda value: None if value == 1 else value,
            lambda value: 1.0 if value is None else value,
        ),
        Word("num_eval_envs", "eval_episodes", 128),
        Word("deterministic_eval", "eval_stochastic", False, opposite, opposite),
        Word("seed", "seed", 0),
    ),
    {
        "num_timesteps": REQUIRED,
        "num_envs": 1,
        "unroll_length": 10,
        "batch_size": 32,
        "num_minibatches": 16,
        "action_repeat": 1,
        "num_evals": 1,
        "num_resets_per_eval": 0,
        "episode_length": None,
    },
    read_brax,
    write_brax,
    untold={
        "desired_kl": "give --adaptive-kl if learning_rate_schedule is ADAPTIVE_KL",
        "learning_rate_schedule": "ADAPTIVE_KL is --adaptive-kl with desired_kl",
        "bootstrap_on_timeout": "truncated episodes are always bootstrapped here",
        "network_factory": "give --hidden-sizes and --activation",
        "max_devices_per_host": "give --devices",
        "normalize_observations_mode": "running statistics here are Welford's",
        "randomization_fn": "there is no randomisation of domains here",
        "restore_checkpoint_path": "see `trimtab resume`",
        "save_checkpoint_path": "give --run-dir",
        "use_distributional_critic": "critics here have one output",
        "wrap_env": "episodes are always reset by the collector here",
        "wrap_env_fn": "episodes are always reset by the collector here",
        **dict.fromkeys(
            (
                "augment_pixels",
                "eval_env",
                "learning_rate_schedule_max_lr",
                "learning_rate_schedule_min_lr",
                "log_training_metrics",
                "madrona_backend",
                "normalize_observations_std_eps",
                "normalize_until_count",
                "policy_params_fn",
                "progress_fn",
                "restore_params",
                "restore_value_fn",
                "run_evals",
                "training_metrics_steps",
                "use_pmap_on_reset",
                "vision",
            ),
            "it has no counterpart here",
        ),
    },
    always={"adam_epsilon": 1e-8},
)

# ------------------------------------------------------------------------------ Stable-Baselines3


def read_sb3(given: Values) -> tuple[Values, list[str]]:
    """``batch_size`` is a minibatch, and ``n_steps`` is of each environment."""
    batch, minibatch = given["n_envs"] * given["n_steps"], given["batch_size"]
    wanted, notes = max(1, round(batch / minibatch)), []
    minibatches = min(nearest_divisors(batch, wanted), key=lambda d: abs(d - wanted))
    if minibatch > batch:
        notes.append(
            f"batch_size = {minibatch:,} is over the rollout, n_envs × n_steps = {batch:,}: every "
            f"minibatch is the whole of it, once an epoch."
        )
    elif batch != minibatches * minibatch:
        notes.append(
            f"{batch:,} transitions are not a multiple of batch_size = {minibatch:,}: SB3's last "
            f"minibatch of {-(-batch // minibatch)} is smaller. Here there are {minibatches} of "
            f"{batch // minibatches:,} each."
        )
    ours = {
        "num_envs": given["n_envs"],
        "num_steps": given["n_steps"],
        "minibatches": minibatches,
        "total_steps": given["total_timesteps"],
    }
    return ours, notes


def write_sb3(configuration: Configuration) -> tuple[Values, list[str]]:
    training = configuration.training
    theirs = {
        "n_envs": training.num_envs,
        "n_steps": training.num_steps,
        "batch_size": batch_size(training) // configuration.algorithm.minibatches,
        "total_timesteps": training.total_steps,
    }
    return theirs, []


SB3 = Dialect(
    "Stable-Baselines3 PPO",
    (
        Word("n_epochs", "epochs", 10),
        Word("learning_rate", "learning_rate", 3e-4),
        Word("gamma", "gamma", 0.99),
        Word("gae_lambda", "gae_lambda", 0.95),
        Word("clip_range", "clip_range", 0.2),
        Word("clip_range_vf", "value_clip_range", None),
        Word("normalize_advantage", "advantage_normalization", True, *NORMALISED),
        Word("ent_coef", "entropy_coefficient", 0.0),
        # SB3's loss of the critic is the squared error, ours is half of it.
        Word("vf_coef", "value_coefficient", 0.5, doubled, halved),
        Word("max_grad_norm", "max_grad_norm", 0.5),
        Word("target_kl", "target_kl", None),
        Word("seed", "seed", 0),
    ),
    {"total_timesteps": REQUIRED, "n_envs": 1, "n_steps": 2048, "batch_size": 64},
    read_sb3,
    write_sb3,
    untold={
        "policy": "the network follows from the spaces",
        "policy_kwargs": "give --hidden-sizes, --activation and --initial-log-std",
        "normalize": "give --normalize-observations and --normalize-rewards",
        "use_sde": "there is no state-dependent exploration here",
        "sde_sample_freq": "there is no state-dependent exploration here",
        "device": "give --devices",
        "verbose": "give --quiet",
        "tensorboard_log": "give --track tensorboard",
        "env_wrapper": "wrap the environment itself",
        "frame_stack": "wrap the environment itself",
        "rollout_buffer_class": "rollouts are arrays here",
        "rollout_buffer_kwargs": "rollouts are arrays here",
        "stats_window_size": "see docs/metrics.md",
    },
    aliases={"n_timesteps": "total_timesteps"},  # as in the RL Zoo's files
)

# ---------------------------------------------------------------------------------------- CleanRL


def read_cleanrl(given: Values) -> tuple[Values, list[str]]:
    """``total_timesteps`` is rounded down to whole iterations."""
    batch = given["num_envs"] * given["num_steps"]
    updates = given["total_timesteps"] // batch
    if updates < 1:
        raise SettingError(
            f"cleanrl: total_timesteps = {given['total_timesteps']:,} is less than one rollout of "
            f"num_envs × num_steps = {batch:,}: CleanRL would train nothing."
        )
    lost, notes = given["total_timesteps"] - updates * batch, []
    if lost:
        notes.append(
            f"CleanRL rounds total_timesteps down to {updates:,} iterations: {updates * batch:,} "
            f"steps."
        )
    ours = {
        "num_envs": given["num_envs"],
        "num_steps": given["num_steps"],
        "minibatches": given["num_minibatches"],
        "total_steps": updates * batch,
        "clip_range": given["clip_coef"],
        "value_clip_range": given["clip_coef"] if given["clip_vloss"] else None,
    }
    return ours, notes


def write_cleanrl(configuration: Configuration) -> tuple[Values, list[str]]:
    training = configuration.training
    theirs = {
        "num_envs": training.num_envs,
        "num_steps": training.num_steps,
        "num_minibatches": configuration.algorithm.minibatches,
        "total_timesteps": num_updates(training) * batch_size(training),
        "clip_coef": configuration.algorithm.clip_range,
        "clip_vloss": configuration.algorithm.value_clip_range is not None,
    }
    return theirs, []


CLEANRL = Dialect(
    "CleanRL ppo.py",
    (
        Word("update_epochs", "epochs", 4),
        Word("learning_rate", "learning_rate", 2.5e-4),
        Word(
            "anneal_lr",
            "learning_rate_schedule",
            True,
            lambda on: "linear" if on else "constant",
            lambda kind: kind != "constant",
        ),
        Word("gamma", "gamma", 0.99),
        Word("gae_lambda", "gae_lambda", 0.95),
        Word("norm_adv", "advantage_normalization", True, *NORMALISED),
        Word("ent_coef", "entropy_coefficient", 0.01),
        Word("vf_coef", "value_coefficient", 0.5),
        Word("max_grad_norm", "max_grad_norm", 0.5),
        Word("target_kl", "target_kl", None),
        Word("seed", "seed", 1),
    ),
    {
        "total_timesteps": 500_000,
        "num_envs": 4,
        "num_steps": 128,
        "num_minibatches": 4,
        "clip_coef": 0.2,
        "clip_vloss": True,
    },
    read_cleanrl,
    write_cleanrl,
    untold={
        "env_id": "it is the first argument here",
        "torch_deterministic": "runs are repeatable here",
        "cuda": "give --devices",
        "track": "give --track wandb",
        "wandb_project_name": "give --track-project",
        "wandb_entity": "it has no counterpart here",
        "capture_video": "it has no counterpart here",
        "exp_name": "give --run-dir",
    },
)

DIALECTS = {"brax": BRAX, "sb3": SB3, "cleanrl": CLEANRL}
