"""Streams that are derived together are those that are derived one by one."""

import jax
import numpy as np

from trimtab.keys import Purpose, lane_streams, stream, streams_of_lanes


def test_streams_of_several_purposes_are_those_of_each():
    root, lanes = jax.random.key(3), np.int32([0, 5, 2])
    purposes = Purpose.ACT, Purpose.RESET
    together = streams_of_lanes(root, purposes, 7, lanes)
    assert together.shape == (2, 3)
    for row, purpose in zip(together, purposes, strict=True):
        assert (row == lane_streams(root, purpose, 7, lanes)).all()
        for key, lane in zip(row, lanes, strict=True):
            alone = jax.random.fold_in(stream(root, purpose, 7), lane)
            np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(alone))
