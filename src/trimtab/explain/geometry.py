"""The shape of a run: rollouts, minibatches, gradient steps, and how many of each. No JAX here."""

import dataclasses
import math
from typing import Any

from trimtab.configuration import Configuration
from trimtab.spaces import EnvSpec
from trimtab.training.config import evaluations_at, num_updates


@dataclasses.dataclass(frozen=True)
class Geometry:
    """What follows from the settings by arithmetic alone."""

    num_envs: int  # N
    num_steps: int  # T
    epochs: int
    minibatches: int
    updates: int
    requested_steps: int
    evaluations: int  # while training, at most; one more, of the best policy, is made at the end
    eval_episodes: int
    gamma: float
    gae_lambda: float | None  # None: the algorithm has none
    longest_episode: int | None  # None: unknown, or without a limit
    recurrent: bool = False  # then minibatches are of whole lanes
    runs: int = 1  # that are trained at once, each of this shape
    whole: bool = False  # rollouts of whole episodes

    @staticmethod
    def of(configuration: Configuration, spec: EnvSpec | None = None, runs: int = 1) -> "Geometry":
        """Of a configuration; ``spec`` is of the environment as the run sees it."""
        training, algorithm = configuration.training, configuration.algorithm
        longest = training.max_episode_steps if spec is None else spec.max_episode_steps
        return Geometry(
            num_envs=training.num_envs,
            num_steps=training.num_steps,
            epochs=algorithm.epochs,
            minibatches=algorithm.minibatches,
            updates=num_updates(training),
            requested_steps=training.total_steps,
            evaluations=evaluations_at(training),
            eval_episodes=training.eval_episodes,
            gamma=discount(algorithm),
            gae_lambda=getattr(algorithm, "gae_lambda", None),
            longest_episode=longest,
            recurrent=algorithm.gru_units is not None,
            runs=runs,
            whole=getattr(algorithm, "episodes", "fixed") == "whole",
        )

    @property
    def batch(self) -> int:
        """Transitions of one rollout, N×T."""
        return self.num_envs * self.num_steps

    @property
    def minibatch(self) -> float:
        """Transitions of one gradient step; not whole where training would be refused."""
        exact = self.batch / self.minibatches
        return int(exact) if exact.is_integer() else exact

    @property
    def minibatch_words(self) -> str:
        """256, 38.4."""
        size = self.minibatch
        return f"{size:,}" if isinstance(size, int) else f"{size:,.1f}"

    @property
    def shuffled(self) -> int:
        """What is shuffled and cut into minibatches: transitions, or a recurrent policy's lanes."""
        return self.num_envs if self.recurrent else self.batch

    @property
    def divides(self) -> bool:
        """Whether minibatches are equal; `trimtab train` refuses them otherwise."""
        return self.shuffled % self.minibatches == 0

    @property
    def gradient_steps(self) -> int:
        """In one update. Each uses a minibatch, and each transition is in ``epochs`` of them."""
        return self.epochs * self.minibatches

    @property
    def total_steps(self) -> int:
        """What the run will do: whole updates."""
        return self.updates * self.batch

    @property
    def most_total_steps(self) -> int | None:
        """With what whole episodes take beyond it, at the most; None: unknown."""
        if not self.whole:
            return self.total_steps
        if self.longest_episode is None:
            return None
        return self.total_steps + self.num_envs * (self.longest_episode - 1)

    @property
    def excess(self) -> int:
        """How many more steps that is than were asked for."""
        return self.total_steps - self.requested_steps

    @property
    def horizon(self) -> float:
        """1/(1 − γ): how many steps ahead rewards count, by and large."""
        return math.inf if self.gamma >= 1 else 1.0 / (1.0 - self.gamma)

    @property
    def reach(self) -> float:
        """1/(1 − γλ): how many steps of true rewards an advantage is made of, if T allows."""
        decay = self.gamma * (1.0 if self.gae_lambda is None else self.gae_lambda)
        return math.inf if decay >= 1 else 1.0 / (1.0 - decay)

    @property
    def used_reach(self) -> float:
        """The reach that T leaves: the mean over the rollout of Σ (γλ)^k up to its end.

        A step t of T has T − t rewards before it, so for d = γλ
            reach(T) = (1/T) Σ_t (1 − d^(T−t)) / (1 − d) = [T − d (1 − d^T)/(1 − d)] / [T (1 − d)]
        """
        steps, reach = self.num_steps, self.reach
        if math.isinf(reach):
            return (steps + 1) / 2
        decay = 1.0 - 1.0 / reach
        return (steps - decay * (1.0 - decay**steps) * reach) * reach / steps

    @property
    def acts_as_lambda(self) -> float | None:
        """The λ whose reach, were T endless, is the one that T leaves; None without a λ."""
        if self.gae_lambda is None or self.gamma == 0:
            return None
        return max(0.0, (1.0 - 1.0 / self.used_reach) / self.gamma)

    @property
    def fewest_episodes(self) -> float | None:
        """Episodes that a rollout holds if all of them last as long as they may."""
        return None if self.longest_episode is None else self.batch / self.longest_episode

    @property
    def most_evaluation_steps(self) -> int | None:
        """Steps that all evaluations play at most, beside the run's own."""
        if self.longest_episode is None:
            return None
        return (self.evaluations + 1) * self.eval_episodes * self.longest_episode

    @property
    def evaluation_share(self) -> float | None:
        """Of all steps that are played, how many evaluations play at most."""
        most = self.most_evaluation_steps
        return None if most is None else most / (most + self.total_steps)

    def figures(self) -> dict[str, Any]:
        """All of it, for programs."""
        derived = (
            "batch",
            "minibatch",
            "divides",
            "gradient_steps",
            "total_steps",
            "most_total_steps",
            "excess",
            "horizon",
            "reach",
            "used_reach",
            "acts_as_lambda",
            "fewest_episodes",
            "most_evaluation_steps",
            "evaluation_share",
        )
        return dataclasses.asdict(self) | {name: getattr(self, name) for name in derived}


def discount(algorithm: Any) -> float:
    """γ, which may have been given as a horizon."""
    horizon = getattr(algorithm, "horizon", None)
    return algorithm.gamma if horizon is None else 1.0 - 1.0 / horizon
