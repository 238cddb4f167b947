"""Why a minibatch is differentiated in parts on a CPU: against all of its rows at once.

The gradient of PPO's loss on CartPole-v1 (separate 64×64 actor and critic), through the algorithm's
own ``gradient``, with parts of at most ``algos.sgd.MOST_ROWS`` rows and without parts. One process
with one thread, in turns, and counted in the process's own CPU time, so that others on the machine
disturb it least.

    python bench/parts.py
"""

import os
import statistics
import sys
import time
from typing import Any

import harness

MINIBATCHES = (512, 2048, 4096, 16384)
REPEATED = 8  # gradients in a call


def program(size: int, in_parts: bool) -> Any:
    """A compiled call of ``REPEATED`` gradient steps on one minibatch."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from trimtab.algos import sgd
    from trimtab.algos.onpolicy import Sample
    from trimtab.algos.ppo import PPO
    from trimtab.envs.make import make
    from trimtab.nets.flat import Flat

    ppo = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), PPO(entropy_coefficient=0.01))
    parameters = ppo.init(jax.random.key(0), make("CartPole-v1").spec).parameters
    keys = jax.random.split(jax.random.key(1), 4)
    absent = dict.fromkeys(Sample._fields)
    minibatch = Sample(**absent)._replace(
        obs=jax.random.normal(keys[0], (size, 4)),
        action=jax.random.randint(keys[1], (size,), 0, 2),
        log_prob=jnp.full(size, -0.7),
        advantage=jax.random.normal(keys[2], (size,)),
        target=jax.random.normal(keys[3], (size,)),
    )

    @jax.jit
    def learn(parameters: Flat) -> Flat:
        def step(_: Any, now: Flat) -> Flat:
            gradient, _ = ppo.gradient(now, minibatch)
            return Flat(now.vector - 1e-6 * gradient, now.structure)

        return jax.lax.fori_loop(0, REPEATED, step, parameters)

    most = sgd.MOST_ROWS
    sgd.MOST_ROWS = most if in_parts else size  # pyright: ignore[reportConstantRedefinition]
    try:
        compiled = learn.lower(parameters).compile()
    finally:
        sgd.MOST_ROWS = most  # pyright: ignore[reportConstantRedefinition]
    return lambda: jax.block_until_ready(compiled(parameters))


def measure(size: int, quick: bool) -> dict[str, Any]:
    made = {"parts": program(size, True), "whole": program(size, False)}
    nanoseconds: dict[str, list[float]] = {name: [] for name in made}
    for call in made.values():
        call()
    for _ in range(5 if quick else 25):
        for name, call in made.items():
            begun = time.process_time()
            call()
            nanoseconds[name].append(1e9 * (time.process_time() - begun) / size / REPEATED)
    pairs = zip(nanoseconds["whole"], nanoseconds["parts"], strict=True)
    ratios = [whole / parts for whole, parts in pairs]
    return {"size": size, "nanoseconds": nanoseconds, "ratios": ratios}


def main() -> None:
    options = harness.arguments(__doc__).parse_args()
    os.environ["NPROC"] = "1"
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_prefer_vector_width=512".strip()
    print(f"Gradients of a minibatch, in parts and whole. {harness.machine_words()}")
    found = [measure(size, options.quick) for size in MINIBATCHES]
    rows = [
        [
            one["size"],
            f"{statistics.median(one['nanoseconds']['parts']):.0f}",
            f"{statistics.median(one['nanoseconds']['whole']):.0f}",
            harness.ratio_words(one["ratios"]),
        ]
        for one in found
    ]
    print()
    print("Nanoseconds of CPU time for one sample; the ratio is how many times as fast parts are.")
    print(harness.table(["minibatch", "in parts", "whole", "ratio (range)"], rows))
    harness.write_figures(options.json, {"cases": found})


if __name__ == "__main__":
    sys.exit(main())
