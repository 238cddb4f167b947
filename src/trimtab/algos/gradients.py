"""Gradients per sample and per head: actor, critic, entropy.

They behave differently, so they are measured apart: each head's loss is one field of the
algorithm's ``Terms``, without its weight, and its gradient is taken with respect to the arrays that
it depends on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Literal

from trimtab.errors import SettingError, did_you_mean

# The field of Terms, and its sign in the loss.
HEADS = {"actor": ("policy", 1.0), "critic": ("value", 1.0), "entropy": ("entropy", -1.0)}
Loss = Callable[[Any, Any], Array]


def head_loss(algorithm: Any, head: str) -> Loss:
    """The loss of one head: ``loss(network, sample) -> scalar``."""
    field, sign = HEADS[head]
    return lambda network, sample: sign * getattr(algorithm.terms(network, sample), field)


class Gradient(NamedTuple):
    """A loss, and which of the network's arrays it depends on."""

    loss: Loss
    used: tuple[bool, ...]  # one for each array of the network

    @staticmethod
    def of(loss: Loss, network: Any, sample: Any) -> "Gradient":
        return Gradient(loss, used_arrays(loss, network, sample))

    def size(self, network: Any) -> int:
        """The number of parameters that the loss depends on."""
        return sum(leaf.size for leaf in self._chosen(jax.tree.leaves(network)))

    def per_sample(self, network: Any, samples: Any) -> Array:
        """Flat gradients of the samples: leaves [T, N, ...] give [T, N, P]."""
        each = jax.vmap(jax.vmap(self._one, (None, 0)), (None, 0))(network, samples)
        steps, lanes = each[0].shape[:2]
        return jnp.concatenate([leaf.reshape(steps, lanes, -1) for leaf in each], axis=2)

    def mean(self, network: Any, samples: Any) -> Array:
        """The flat gradient of the mean loss over samples [T, N, ...]."""
        per_sample = jax.vmap(jax.vmap(self.loss, (None, 0)), (None, 0))
        whole = Gradient(lambda net, rows: per_sample(net, rows).mean(), self.used)
        return jnp.concatenate([leaf.ravel() for leaf in whole._one(network, samples)])

    def flat(self, network: Any) -> Array:
        """The arrays of a network, or of a gradient, that belong to this head, as one vector."""
        chosen = self._chosen(jax.tree.leaves(network))
        return jnp.concatenate([leaf.ravel() for leaf in chosen])

    def _one(self, network: Any, sample: Any) -> list[Array]:
        leaves, treedef = jax.tree.flatten(network)

        def loss_of(chosen: list[Array]) -> Array:
            rest = iter(chosen)
            merged = [
                next(rest) if used else leaf for leaf, used in zip(leaves, self.used, strict=True)
            ]
            return self.loss(treedef.unflatten(merged), sample)

        return jax.grad(loss_of)(self._chosen(leaves))

    def _chosen(self, leaves: list[Any]) -> list[Any]:
        return [leaf for leaf, used in zip(leaves, self.used, strict=True) if used]


def used_arrays(loss: Loss, network: Any, sample: Any) -> tuple[bool, ...]:
    """Which arrays of the network the loss depends on, read off its trace.

    Gradients per sample of arrays without influence are zeros that would still fill memory.
    """
    traced = jax.make_jaxpr(loss)(network, sample).jaxpr
    needed = {variable for variable in traced.outvars if not isinstance(variable, Literal)}
    for equation in reversed(traced.eqns):
        if needed.intersection(equation.outvars):
            needed |= {v for v in equation.invars if not isinstance(v, Literal)}
    count = len(jax.tree.leaves(network))
    return tuple(variable in needed for variable in traced.invars[:count])


def check_heads(names: tuple[str, ...]) -> None:
    if not names:
        raise SettingError(f"--heads names none: expected some of {', '.join(HEADS)}.")
    for name in names:
        if name not in HEADS:
            raise SettingError(
                f"--heads {name} is not valid: expected {', '.join(HEADS)}, separated by commas."
                f"{did_you_mean(name, HEADS)}"
            )
