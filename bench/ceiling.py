"""A worker for fused_ppo.py: how fast the two networks alone can learn, on one core.

An actor (4–64–64–2) and a critic (4–64–64–1), tanh, weights stored [in, out]: forward, backward
with respect to the tree of arrays, and a plain gradient step, in a ``lax.scan`` over one minibatch
that never changes. No environment, no sampling, no loss worth the name, no shuffle, no Adam: PPO
with E epochs cannot make more environment steps a second than these samples a second divided by E.

    python ceiling.py 1024 0 7 1600000
        (minibatch, core to stay on or -, repetitions, samples in a repetition)
"""

import os
import statistics
import sys

import harness


def main(minibatch: str, core: str, repetitions: str, samples: str) -> None:
    if core != "-" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(core)]})
    os.environ["NPROC"] = "1"
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_prefer_vector_width=512".strip()
    import jax
    import jax.numpy as jnp

    size = int(minibatch)
    count = max(1, int(samples) // size)

    def network(key: jax.Array, outputs: int) -> list[tuple[jax.Array, jax.Array]]:
        sizes = [(4, 64), (64, 64), (64, outputs)]
        keys = jax.random.split(key, len(sizes))
        return [
            (0.1 * jax.random.normal(k, s), jnp.zeros(s[1]))
            for k, s in zip(keys, sizes, strict=True)
        ]

    def output(layers: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
        for weight, bias in layers[:-1]:
            x = jnp.tanh(x @ weight + bias)
        weight, bias = layers[-1]
        return x @ weight + bias

    def loss(networks: list, obs: jax.Array) -> jax.Array:
        return sum(jnp.sum(output(layers, obs) ** 2) for layers in networks) / size

    @jax.jit
    def learn(networks: list, obs: jax.Array) -> list:
        def step(networks: list, _: None) -> tuple[list, None]:
            gradient = jax.grad(loss)(networks, obs)
            return jax.tree.map(lambda p, g: p - 1e-3 * g, networks, gradient), None

        return jax.lax.scan(step, networks, None, length=count)[0]

    keys = jax.random.split(jax.random.key(0), 3)
    networks = [network(keys[0], 2), network(keys[1], 1)]
    obs = jax.random.normal(keys[2], (size, 4))
    jax.block_until_ready(learn(networks, obs))
    harness.wait_for_go()
    found = harness.rates(
        lambda: jax.block_until_ready(learn(networks, obs)), count * size, int(repetitions)
    )
    harness.answer(rate=statistics.median(found), rates=found)


if __name__ == "__main__":
    main(*sys.argv[1:])
