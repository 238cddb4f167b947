"""What can be set in each algorithm: names, defaults, help, bounds. What they do is beside it.

Kept apart from the mathematics so that flags and configuration files are read, and mistakes in them
are answered, before JAX loads.
"""

import dataclasses
from typing import Literal

from trimtab.settings import setting

ScheduleKind = Literal["constant", "linear"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOSettings:
    """Proximal policy optimisation (Schulman et al. 2017), with the details that make it work."""

    learning_rate: float = setting(3e-4, "step size of Adam", above=0, at_most=1)
    learning_rate_schedule: ScheduleKind = setting(
        "constant", "how the learning rate changes over the run: constant, or linear to zero"
    )
    gamma: float = setting(
        0.99, "discount: rewards count for about 1/(1-gamma) steps", at_least=0, at_most=1
    )
    gae_lambda: float = setting(
        0.95, "GAE: 0 trusts the critic, 1 trusts the returns", at_least=0, at_most=1
    )
    clip_range: float = setting(
        0.2, "how far the probability ratio may move from 1 and still gain", above=0, at_most=10
    )
    epochs: int = setting(4, "passes over each rollout", at_least=1, at_most=1000)
    minibatches: int = setting(
        4, "gradient steps in each pass; each transition is used once a pass", at_least=1
    )
    normalize_advantages: bool = setting(
        True, "shift and scale the advantages of each minibatch to mean 0, deviation 1"
    )
    normalize_observations: bool = setting(
        False, "shift and scale observations by their running mean and deviation, clipped to ±10"
    )
    entropy_coefficient: float = setting(
        0.0, "weight of the entropy bonus, which keeps the policy exploring", at_least=-1, at_most=1
    )
    value_coefficient: float = setting(0.5, "weight of the critic's loss", at_least=0, at_most=100)
    max_grad_norm: float = setting(
        0.5, "gradients longer than this are shortened to it", above=0, at_most=1e9
    )
    adam_beta1: float = setting(0.9, "Adam: memory of the mean gradient", at_least=0, below=1)
    adam_beta2: float = setting(0.999, "Adam: memory of the squared gradient", at_least=0, below=1)
    adam_epsilon: float = setting(1e-5, "Adam: added to the denominator", above=0, at_most=1)
    hidden_sizes: tuple[int, ...] = setting(
        (64, 64), "units in each hidden layer of the actor and of the critic", at_least=1
    )
    activation: Literal["tanh", "relu", "elu", "silu"] = setting(
        "tanh", "nonlinearity of the hidden layers"
    )
    initial_log_std: float = setting(
        0.0, "log of a continuous policy's first standard deviation", at_least=-10, at_most=5
    )


ALGORITHMS = {"ppo": PPOSettings}
