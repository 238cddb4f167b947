"""Seeds of lanes: functions of the lane alone, so that no number of workers can shift a stream."""

import numpy as np


def restart_seed(seed: int, restarts: int) -> int:
    """The seed of a lane that began with ``seed``, after that many restarts; 0 restarts keep it.

    A restarted lane must not repeat the episode that broke it.
    """
    if restarts == 0:
        return seed
    word = np.random.SeedSequence([seed, restarts]).generate_state(1)[0]
    return int(word >> 1)  # Gymnasium's environments differ in the largest seed that they take
