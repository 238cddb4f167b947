"""A policy from a run's folder, without the environment that it was trained in."""

import dataclasses
import functools
from typing import Any, final

import jax
import numpy as np

from trimtab.errors import SettingError
from trimtab.spaces import EnvSpec, map_space, to_environment, zeros
from trimtab.training import checkpoint
from trimtab.training.rundir import RunFolder


@final
@dataclasses.dataclass(frozen=True)
class StoredPolicy:
    """What a policy is made of."""

    algorithm_name: str
    algorithm: Any
    learner: Any
    spec: EnvSpec

    @staticmethod
    def load(
        folder: RunFolder, algorithm_name: str, algorithm: Any, spec: EnvSpec, name: str
    ) -> "StoredPolicy":
        """The policy in a checkpoint of the folder."""
        shapes = jax.eval_shape(lambda key: algorithm.init(key, spec), jax.random.key(0))
        expect = {"environment": spec.id, "network": shapes.parameters.shapes()}
        found, _ = checkpoint.load(
            folder.checkpoint_path(name), {"learner": shapes}, expect=expect, partial=True
        )
        return StoredPolicy(algorithm_name, algorithm, found["learner"], spec)

    @property
    def example(self) -> Any:
        """An observation of the right form."""
        return zeros(self.spec.observation)

    @functools.cached_property
    def _actions(self) -> tuple[Any, Any]:
        def act(learner: Any, obs: Any) -> Any:
            actor = self.algorithm.actor(learner)
            return self.algorithm.best_action(actor, self.algorithm.first_memory(actor), obs)[0]

        return jax.jit(act), jax.jit(jax.vmap(act, in_axes=(None, 0)))

    def actions(self, obs: Any) -> np.ndarray:
        """The best action for one observation, or for a batch of them; of dicts, a dict of those.

        Actions are as the environment takes them: clipped and scaled to its bounds.
        """
        given, is_batch = self._checked(obs)
        single, batched = self._actions
        action = np.asarray((batched if is_batch else single)(self.learner, given))
        return np.asarray(to_environment(self.spec.action, action))

    def _checked(self, obs: Any) -> tuple[Any, bool]:
        """The observation as arrays, and whether it is a batch of them."""
        space, example = self.spec.observation, self.example
        try:
            given = map_space(lambda _, one, like: np.asarray(one, like.dtype), space, obs, example)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SettingError(
                f"policy(obs): an observation of {self.spec.id} is {space}; got {obs!r:.200}."
            ) from error
        pairs = list(zip(jax.tree.leaves(given), jax.tree.leaves(example), strict=True))
        extra = {one.ndim - like.ndim for one, like in pairs}
        fits = all(one.shape[max(one.ndim - like.ndim, 0) :] == like.shape for one, like in pairs)
        if extra not in ({0}, {1}) or not fits:
            shapes = ", ".join(str(like.shape) for _, like in pairs)
            found = ", ".join(str(one.shape) for one, _ in pairs)
            raise SettingError(
                f"policy(obs): an observation of {self.spec.id} has the shape {shapes}, with "
                f"one more axis in front for a batch; got {found}."
            )
        return given, extra == {1}
