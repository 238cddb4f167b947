"""What the episodes of a rollout came to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from trimtab.collect.episodes import Finished, median
from trimtab.ops.across import Across

NAN = np.nan
# Three steps in four lanes: which episodes end, with which return and length.
ENDED = np.array([[1, 0, 0, 1], [0, 0, 1, 1], [1, 0, 0, 0]], bool)
RETURNS = np.float32([[5, 9, 9, 2], [9, 9, -3, 4], [1, 9, 9, 9]])
LENGTHS = np.int32([[7, 9, 9, 1], [9, 9, 6, 2], [3, 9, 9, 9]])
EXPECTED = {
    "rollout/episodes": 5,
    "rollout/return_mean": (5 + 2 - 3 + 4 + 1) / 5,
    "rollout/return_median": 1,  # of the last in each lane: 1, −3, 4
    "rollout/return_max": 5,
    "rollout/return_min": -3,
    "rollout/length_mean": (7 + 1 + 6 + 2 + 3) / 5,
    "rollout/length_median": 3,  # of 3, 6, 2
    "rollout/length_max": 7,
    "rollout/length_min": 1,
}


def finished() -> Finished:
    result = Finished.none(4)
    for ended, returns, lengths in zip(ENDED, RETURNS, LENGTHS, strict=True):
        result = result.add(jnp.asarray(ended), jnp.asarray(returns), jnp.asarray(lengths))
    return result


def test_the_figures_are_of_the_episodes_that_ended() -> None:
    found = {name: float(value) for name, value in finished().metrics().items()}
    assert found == pytest.approx(EXPECTED)


def test_two_devices_see_the_episodes_of_both() -> None:
    mesh = jax.make_mesh((2,), ("lanes",), (AxisType.Auto,))
    metrics = jax.shard_map(
        lambda part: part.metrics(Across("lanes", 2)),
        mesh=mesh,
        in_specs=PartitionSpec("lanes"),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    found = {name: float(value) for name, value in jax.jit(metrics)(finished()).items()}
    assert found == pytest.approx(EXPECTED)


def test_without_an_episode_there_is_no_figure() -> None:
    found = Finished.none(4).metrics()
    assert found.pop("rollout/episodes") == 0
    assert all(np.isnan(value) for value in found.values())


@pytest.mark.parametrize(
    "values", [[3.0], [3, 1], [2, NAN, 1, 7], [NAN, NAN, 5, NAN], [NAN, NAN], [1, 2, 3, 4, NAN]]
)
def test_median(values: list[float]) -> None:
    found = median(jnp.asarray(values, jnp.float32)[:, None])[0]
    known = [value for value in values if not np.isnan(value)]
    np.testing.assert_allclose(found, np.median(known) if known else NAN)
