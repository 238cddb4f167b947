"""Why trimtab's layers store their weights [in, out]: against the layout of ``eqx.nn.Linear``.

One 64×64 tanh network with 4 inputs and 2 outputs, as trimtab's own MLP and with ``eqx.nn.Linear``
(which stores [out, in]), both mapped with ``vmap``. Forward at the widths of a rollout, forward
and backward (with a gradient step) at the widths of a minibatch, each repeated in a ``lax.scan``.
The two take turns in one process with one thread, so that the ratio is of the same minutes.

    python bench/layers.py
"""

import os
import statistics
import sys
from typing import Any

import harness

CASES = (("forward", 4), ("forward", 64), ("forward and backward", 128))
CASES += (("forward and backward", 2048),)
INPUTS, HIDDEN, OUTPUTS = 4, 64, 2


def networks() -> dict[str, Any]:
    """The same network in both layouts."""
    import equinox as eqx
    import jax

    from trimtab.nets.networks import MLP

    sizes = (INPUTS, HIDDEN, HIDDEN, OUTPUTS)
    ours = MLP.make(jax.random.key(0), sizes, "tanh", last_gain=1.0)
    theirs = eqx.nn.MLP(
        INPUTS, OUTPUTS, HIDDEN, 2, activation=jax.numpy.tanh, key=jax.random.key(1)
    )
    for place, layer in enumerate(ours.layers):
        theirs = eqx.tree_at(
            lambda network, place=place: (
                network.layers[place].weight,
                network.layers[place].bias,
            ),
            theirs,
            (layer.weight.T, layer.bias),
        )
    return {"in_out": ours, "out_in": theirs}


def program(network: Any, case: str, lanes: int, count: int) -> Any:
    """A compiled call of ``count`` repetitions, with its arguments bound."""
    import equinox as eqx
    import jax

    arrays, static = eqx.partition(network, eqx.is_array)
    inputs = jax.random.normal(jax.random.key(2), (lanes, INPUTS))

    def outputs(arrays: Any, x: jax.Array) -> jax.Array:
        return jax.vmap(eqx.combine(arrays, static))(x)

    @jax.jit
    def forward(arrays: Any, x: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            # The next inputs depend on the outputs, or the loop could be moved out of.
            return x + 1e-3 * outputs(arrays, x).sum(axis=1, keepdims=True), None

        return jax.lax.scan(step, x, None, length=count)[0]

    @jax.jit
    def backward(arrays: Any, x: jax.Array) -> Any:
        def loss(arrays: Any) -> jax.Array:
            return (outputs(arrays, x) ** 2).mean()

        def step(arrays: Any, _: None) -> tuple[Any, None]:
            gradient = jax.grad(loss)(arrays)
            return jax.tree.map(lambda p, g: p - 1e-3 * g, arrays, gradient), None

        return jax.lax.scan(step, arrays, None, length=count)[0]

    chosen = forward if case == "forward" else backward
    return lambda: jax.block_until_ready(chosen(arrays, inputs))


def measure(case: str, lanes: int, quick: bool) -> dict[str, Any]:
    count = max(4, (100_000 if quick else 400_000) // lanes // (1 if lanes > 64 else 4))
    made = {name: program(network, case, lanes, count) for name, network in networks().items()}
    nanoseconds: dict[str, list[float]] = {name: [] for name in made}
    for run in made.values():
        run()
    for _ in range(5 if quick else 15):
        for name, run in made.items():
            rate = harness.rates(run, count * lanes, 1)[0]
            nanoseconds[name].append(1e9 / rate)
    pairs = zip(nanoseconds["out_in"], nanoseconds["in_out"], strict=True)
    return {
        "case": case,
        "lanes": lanes,
        "nanoseconds": nanoseconds,
        "ratios": [theirs / ours for theirs, ours in pairs],
    }


def main() -> None:
    options = harness.arguments(__doc__).parse_args()
    os.environ["NPROC"] = "1"
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_prefer_vector_width=512".strip()
    print(f"Layouts of a 64×64 network. {harness.machine_words()}")
    found = [measure(case, lanes, options.quick) for case, lanes in CASES]
    rows = [
        [
            one["case"],
            one["lanes"],
            f"{statistics.median(one['nanoseconds']['in_out']):.0f}",
            f"{statistics.median(one['nanoseconds']['out_in']):.0f}",
            harness.ratio_words(one["ratios"]),
        ]
        for one in found
    ]
    print()
    print("Nanoseconds for one lane; the ratio is how many times as fast [in, out] is.")
    print(harness.table(["", "lanes", "[in, out]", "eqx.nn.Linear", "ratio (range)"], rows))
    harness.write_figures(options.json, {"cases": found})


if __name__ == "__main__":
    sys.exit(main())
