"""Why convolutions on a CPU are a matrix product over patches: against XLA's own convolution.

The convolution of MinAtar's images (10×10×4, sixteen 3×3 kernels, stride 1), as trimtab's own and
by ``lax.conv_general_dilated``, mapped over a minibatch: forward, and the gradient by its weights,
each repeated in a ``lax.scan``. The two take turns in one process with one thread, so that the
ratio is of the same minutes. Both give the same numbers, to float tolerance.

    python bench/convolutions.py
"""

import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

import harness

IMAGE, KERNELS, KERNEL = (10, 10, 4), 16, 3
CASES = (("forward", 64), ("gradient", 64), ("gradient", 512))


def convolutions() -> dict[str, Callable[[Any, Any], Any]]:
    """Both, as functions of the weights and an image."""
    import jax
    from jax import lax

    from trimtab.nets.networks import Convolution

    def ours(weight: jax.Array, image: jax.Array) -> jax.Array:
        return Convolution(weight, jax.numpy.zeros(KERNELS), 1)(image)

    def theirs(weight: jax.Array, image: jax.Array) -> jax.Array:
        layout = ("NHWC", "HWIO", "NHWC")
        made = lax.conv_general_dilated(
            image[None], weight, (1, 1), "VALID", dimension_numbers=layout
        )
        return made[0]

    return {"patches": ours, "lax": theirs}


def program(convolve: Callable[[Any, Any], Any], case: str, images: int, count: int) -> Any:
    """A compiled call of ``count`` repetitions, with its arguments bound."""
    import jax

    first = jax.random.normal(jax.random.key(0), (KERNEL, KERNEL, IMAGE[-1], KERNELS))
    batch = jax.random.uniform(jax.random.key(1), (images, *IMAGE))

    def loss(weight: jax.Array) -> jax.Array:
        return (jax.vmap(convolve, (None, 0))(weight, batch) ** 2).mean()

    def step(weight: jax.Array, _: None) -> tuple[jax.Array, None]:
        # The next weights depend on the outputs, or the loop could be moved out of.
        change = loss(weight) if case == "forward" else jax.grad(loss)(weight)
        return weight - 1e-6 * change, None

    repeated = jax.jit(lambda weight: jax.lax.scan(step, weight, None, length=count)[0])
    return lambda: jax.block_until_ready(repeated(first))


def measure(case: str, images: int, quick: bool) -> dict[str, Any]:
    count = max(2, (2_000 if quick else 10_000) // images)
    programs = {name: program(one, case, images, count) for name, one in convolutions().items()}
    microseconds: dict[str, list[float]] = {name: [] for name in programs}
    for run in programs.values():
        run()
    for _ in range(3 if quick else 9):
        for name, run in programs.items():
            microseconds[name].append(1e6 / harness.rates(run, count * images, 1)[0])
    pairs = zip(microseconds["lax"], microseconds["patches"], strict=True)
    return {
        "case": case,
        "images": images,
        "microseconds": microseconds,
        "ratios": [theirs / ours for theirs, ours in pairs],
    }


def main() -> None:
    options = harness.arguments(__doc__).parse_args()
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    os.environ["NPROC"] = "1"
    print(f"Convolutions of small images. {harness.machine_words()}")
    found = [measure(case, images, options.quick) for case, images in CASES]
    rows = [
        [
            one["case"],
            one["images"],
            f"{statistics.median(one['microseconds']['patches']):.1f}",
            f"{statistics.median(one['microseconds']['lax']):.1f}",
            harness.ratio_words(one["ratios"]),
        ]
        for one in found
    ]
    print("\nMicroseconds for one image; the ratio is how many times as fast patches are.")
    print(harness.table(["", "images", "patches", "lax", "ratio (range)"], rows))
    harness.write_figures(options.json, {"cases": found})


if __name__ == "__main__":
    sys.exit(main())
