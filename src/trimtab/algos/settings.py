"""What can be set in each algorithm: names, defaults, help, bounds. What they do is beside it.

Kept apart from the mathematics so that flags and configuration files are read, and mistakes in them
are answered, before JAX loads. A number that may be none is off when it is: the work that it asks
for is then not part of the compiled program.
"""

import dataclasses
from typing import ClassVar, Literal

from trimtab.errors import SettingError
from trimtab.settings import check_effects, setting

ScheduleKind = Literal["constant", "linear", "cosine"]
FALLING = ("linear", "cosine")
MOST_UNITS = 65_536


def schedule_setting(of: str) -> ScheduleKind:
    return setting("constant", f"how {of} changes over the run: constant, or falling to zero")


def warmup_setting(of: str) -> float | None:
    return setting(None, f"share of the run in which {of} rises to its value", above=0, below=1)


def decay_start_setting(of: str, schedule: str) -> float | None:
    return setting(
        None,
        f"share of the run after which {of} begins to fall; none: from the start",
        above=0,
        below=1,
        needs=(schedule, *FALLING),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicySettings:
    """What PPO, A2C and REINFORCE have in common."""

    # Passes over a rollout, and its parts in each: settings only where there may be more than one.
    epochs: ClassVar[int] = 1
    minibatches: ClassVar[int] = 1
    # With fewer episodes in a rollout than this, a run says that its returns are uncertain.
    fewest_episodes: ClassVar[int] = 0

    learning_rate: float = setting(3e-4, "step size of the optimiser", above=0, at_most=1)
    learning_rate_schedule: ScheduleKind = schedule_setting("the learning rate")
    learning_rate_warmup: float | None = warmup_setting("the learning rate")
    learning_rate_decay_start: float | None = decay_start_setting(
        "the learning rate", "learning_rate_schedule"
    )
    gamma: float = setting(
        0.99, "discount: rewards count for about 1/(1-gamma) steps", at_least=0, at_most=1
    )
    horizon: float | None = setting(
        None,
        "another way to give gamma: 1 - 1/horizon; never both",
        at_least=1,
        at_most=1e7,
        instead_of="gamma",
    )
    entropy_coefficient: float = setting(
        0.0, "weight of the entropy bonus, which keeps the policy exploring", at_least=-1, at_most=1
    )
    entropy_schedule: ScheduleKind = schedule_setting("the entropy coefficient")
    entropy_warmup: float | None = warmup_setting("the entropy coefficient")
    entropy_decay_start: float | None = decay_start_setting(
        "the entropy coefficient", "entropy_schedule"
    )
    value_coefficient: float = setting(0.5, "weight of the critic's loss", at_least=0, at_most=100)
    max_grad_norm: float | None = setting(
        0.5, "gradients longer than this are shortened to it; none: never", above=0, at_most=1e9
    )
    adam_beta1: float = setting(0.9, "Adam: memory of the mean gradient", at_least=0, below=1)
    adam_beta2: float = setting(0.999, "Adam: memory of the squared gradient", at_least=0, below=1)
    adam_epsilon: float = setting(1e-5, "Adam: added to the denominator", above=0, at_most=1)
    weight_decay: float | None = setting(
        None,
        "share of each weight (not of biases) that is taken off per unit of learning rate",
        above=0,
        at_most=1,
    )
    normalize_observations: bool = setting(
        False, "shift and scale observations by their running mean and deviation, clipped to ±10"
    )
    reward_scale: float | None = setting(
        None, "rewards are multiplied by this", above=0, at_most=1e9
    )
    normalize_rewards: bool = setting(
        False, "divide rewards by the running deviation of the discounted return"
    )
    reward_clip: float | None = setting(
        None, "rewards, after scaling, are clipped to ± this", above=0, at_most=1e9
    )
    value_normalization: Literal["off", "returns", "popart"] = setting(
        "off",
        "the critic learns targets that are shifted and scaled by their running mean and "
        "deviation; popart also keeps its outputs when those change",
    )
    hidden_sizes: tuple[int, ...] = setting(
        (64, 64),
        "units in each hidden layer of the actor and of the critic",
        at_least=1,
        at_most=MOST_UNITS,
    )
    activation: Literal["tanh", "relu", "elu", "silu"] = setting(
        "tanh", "nonlinearity of the hidden layers"
    )
    trunk: Literal["separate", "shared"] = setting(
        "separate", "whether actor and critic have hidden layers of their own or the same"
    )
    gru_units: int | None = setting(
        None,
        "size of a recurrent memory (GRU); none: the policy has no memory",
        at_least=1,
        at_most=MOST_UNITS,
    )
    hidden_gain: float = setting(
        2**0.5, "gain of the orthogonal first weights of hidden layers", above=0, at_most=100
    )
    policy_gain: float = setting(
        0.01,
        "gain of the policy's last layer: small, so that it begins random",
        above=0,
        at_most=100,
    )
    value_gain: float = setting(1.0, "gain of the critic's last layer", above=0, at_most=100)
    action_distribution: Literal["gaussian", "tanh"] = setting(
        "gaussian",
        "continuous actions: gaussian, clipped to the bounds, or tanh, squashed into them",
    )
    initial_log_std: float = setting(
        0.0, "log of a continuous policy's first standard deviation", at_least=-10, at_most=5
    )
    state_dependent_std: bool = setting(
        False, "whether a continuous policy's deviation depends on the observation"
    )
    actor_keys: tuple[str, ...] = setting(
        (), "keys of a dictionary observation that the actor sees; none: all"
    )
    critic_keys: tuple[str, ...] = setting(
        (),
        "keys of a dictionary observation that the critic sees; none: all",
        needs=("trunk", "separate"),
    )

    def check(self) -> None:
        """Refuse settings that contradict each other, or that have no effect."""
        check_effects(self)
        if self.horizon is not None and self.gamma not in (
            OnPolicySettings.gamma,
            1.0 - 1.0 / self.horizon,
        ):
            raise SettingError(
                f"gamma = {self.gamma:g} and horizon = {self.horizon:g} both say how far rewards "
                f"count: give one of them. horizon = {self.horizon:g} is gamma = "
                f"{1.0 - 1.0 / self.horizon:g}."
            )
        if self.trunk == "shared" and not self.hidden_sizes:
            raise SettingError(
                "trunk = shared needs a hidden layer to share: give hidden_sizes, or leave it at "
                "separate."
            )
        for of in ("warmup", "decay_start"):
            if getattr(self, f"entropy_{of}") is not None and self.entropy_coefficient == 0:
                raise SettingError(
                    f"entropy_{of} has no effect with entropy_coefficient = 0: leave it out, or "
                    f"give a coefficient."
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOSettings(OnPolicySettings):
    """Proximal policy optimisation (Schulman et al. 2017), with the details that make it work."""

    gae_lambda: float = setting(
        0.95, "GAE: 0 trusts the critic, 1 trusts the returns", at_least=0, at_most=1
    )
    clip_range: float = setting(
        0.2, "how far the probability ratio may move from 1 and still gain", above=0, at_most=10
    )
    clip_range_schedule: ScheduleKind = schedule_setting("the clip range")
    clip_range_warmup: float | None = warmup_setting("the clip range")
    clip_range_decay_start: float | None = decay_start_setting(
        "the clip range", "clip_range_schedule"
    )
    dual_clip: float | None = setting(
        None, "bound of the ratio where the advantage is negative, such as 3", above=1, at_most=1e6
    )
    value_clip_range: float | None = setting(
        None, "how far the critic may move from its old value and still gain", above=0, at_most=1e9
    )
    epochs: int = setting(  # pyright: ignore[reportIncompatibleVariableOverride]
        4, "passes over each rollout", at_least=1, at_most=1000
    )
    minibatches: int = setting(  # pyright: ignore[reportIncompatibleVariableOverride]
        4, "gradient steps in each pass; each transition is used once a pass", at_least=1
    )
    advantage_normalization: Literal["minibatch", "batch", "off"] = setting(
        "minibatch", "where advantages are shifted and scaled to mean 0, deviation 1"
    )
    recompute_advantages: bool = setting(
        False, "compute advantages and targets anew, with the newest critic, before each pass"
    )
    target_kl: float | None = setting(
        None,
        "no further pass begins once the KL divergence of one exceeds this",
        above=0,
        at_most=10,
    )
    adaptive_kl: float | None = setting(
        None,
        "the learning rate falls where the KL divergence of an update is over twice this, and "
        "rises where it is under half of it",
        above=0,
        at_most=10,
    )

    def check(self) -> None:
        super().check()
        for name in ("target_kl", "recompute_advantages"):
            if getattr(self, name) and self.epochs == 1:
                raise SettingError(
                    f"{name} acts between passes, and epochs = 1 makes only one: leave it out, or "
                    f"give more epochs."
                )
        if self.adaptive_kl is not None and self.learning_rate_schedule != "constant":
            raise SettingError(
                f"adaptive_kl and learning_rate_schedule = {self.learning_rate_schedule} would "
                f"both change the learning rate: give one of them."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class A2CSettings(OnPolicySettings):
    """Advantage actor-critic (Mnih et al. 2016), synchronous: one gradient step per rollout."""

    learning_rate: float = setting(2e-3, "step size of the optimiser", above=0, at_most=1)
    gae_lambda: float = setting(
        1.0,
        "GAE: 1 is the n-step return of the original, with n = num_steps",
        at_least=0,
        at_most=1,
    )
    advantage_normalization: Literal["batch", "off"] = setting(
        "off", "where advantages are shifted and scaled to mean 0, deviation 1"
    )
    optimiser: Literal["adam", "rmsprop"] = setting("adam", "adam, or rmsprop as in the original")
    rmsprop_decay: float = setting(
        0.99,
        "RMSProp: memory of the squared gradient",
        at_least=0,
        below=1,
        needs=("optimiser", "rmsprop"),
    )
    rmsprop_epsilon: float = setting(
        1e-5,
        "RMSProp: added to the squared gradient",
        above=0,
        at_most=1,
        needs=("optimiser", "rmsprop"),
    )
    adam_beta1: float = setting(
        0.9,
        "Adam: memory of the mean gradient",
        at_least=0,
        below=1,
        needs=("optimiser", "adam"),
    )
    adam_beta2: float = setting(
        0.999,
        "Adam: memory of the squared gradient",
        at_least=0,
        below=1,
        needs=("optimiser", "adam"),
    )
    adam_epsilon: float = setting(
        1e-5,
        "Adam: added to the denominator",
        above=0,
        at_most=1,
        needs=("optimiser", "adam"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class REINFORCESettings(OnPolicySettings):
    """REINFORCE (Williams 1992) with reward-to-go, and a learned baseline unless it is off."""

    fewest_episodes: ClassVar[int] = 16

    learning_rate: float = setting(5e-3, "step size of the optimiser", above=0, at_most=1)
    episodes: Literal["fixed", "whole"] = setting(
        "fixed",
        "fixed: a rollout is num_steps steps of each lane, and a return that it cuts is completed "
        "by the baseline; whole: every lane goes on until its episode has ended",
    )
    epochs: Literal[1, 2, 4] = setting(  # pyright: ignore[reportIncompatibleVariableOverride]
        1, "gradient steps on each rollout"
    )
    advantage_normalization: Literal["batch", "off"] = setting(
        "batch", "where advantages are shifted and scaled to mean 0, deviation 1"
    )
    baseline: Literal["learned", "none"] = setting(
        "learned", "what is subtracted from returns: a learned value of the state, or nothing"
    )
    baseline_rate: float = setting(
        1.0,
        "learning rate of the baseline, as a multiple of the policy's",
        above=0,
        at_most=1e4,
        needs=("baseline", "learned"),
    )
    value_coefficient: float = setting(
        0.5,
        "weight of the baseline's loss",
        at_least=0,
        at_most=100,
        needs=("baseline", "learned"),
    )
    value_normalization: Literal["off", "returns", "popart"] = setting(
        "off",
        "the baseline learns targets that are shifted and scaled by their running mean and "
        "deviation; popart also keeps its outputs when those change",
        needs=("baseline", "learned"),
    )


ALGORITHMS = {"ppo": PPOSettings, "a2c": A2CSettings, "reinforce": REINFORCESettings}
