"""Networks, written for one observation; callers ``vmap``."""

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.nets.module import module, static

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
}
HIDDEN_GAIN = 2**0.5
MOST_DRAWN_TOGETHER = 2**20  # normal numbers of a network's layers


@module
class Dense:
    """``x W + b``, with W stored [in, out].

    ``eqx.nn.Linear`` stores [out, in]. For the narrow batches of a rollout on a CPU, and for the
    gradient, the layout used here is 1.2 to 2 times as fast (bench/layers.py).
    """

    weight: Array
    bias: Array

    @staticmethod
    def orthogonal(key: Array, inputs: int, outputs: int, gain: Array | float) -> "Dense":
        """Orthogonal weights scaled by ``gain`` (Saxe et al. 2013), zero bias."""
        return Dense.of_normal(jax.random.normal(key, (inputs * outputs,)), inputs, outputs, gain)

    @staticmethod
    def of_normal(normal: Array, inputs: int, outputs: int, gain: Array | float) -> "Dense":
        """The same, of inputs × outputs normal numbers."""
        return Dense(gain * orthogonal_factor(normal, inputs, outputs), jnp.zeros(outputs))

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


def orthogonal_factor(normal: Array, rows: int, columns: int) -> Array:
    """A uniformly random matrix with orthonormal columns, or rows if there are fewer of those.

    The polar factor of a normal matrix, by Newton's iteration X ← X (3 − XᵀX) / 2, which takes
    every singular value in (0, √3) to 1. Matrix products only: a QR decomposition would load
    scipy's linear algebra, and several of them mapped over seeds may wait for each other for ever.
    """
    matrix = normal.reshape(max(rows, columns), min(rows, columns))

    def newton(_: Array, x: Array) -> Array:
        return 1.5 * x - 0.5 * x @ (x.T @ x)

    # Singular values grow by half in each step until they are near 1: sixty steps lift 1e-9.
    tall = jax.lax.fori_loop(0, 60, newton, matrix / jnp.linalg.norm(matrix))
    return tall if rows >= columns else tall.T


def normals(keys: Array, sizes: Sequence[int]) -> list[Array]:
    """So many normal numbers of each key, the same ones as if each had been drawn by itself.

    Small ones are drawn together, as many as the largest has: a program takes a fifth of a second
    longer to compile for each place where it draws.
    """
    most = max(sizes)
    if len(sizes) * most > MOST_DRAWN_TOGETHER:
        return [jax.random.normal(key, (size,)) for key, size in zip(keys, sizes, strict=True)]
    drawn = jax.vmap(lambda key: jax.random.normal(key, (most,)))(keys)
    return [row[:size] for row, size in zip(drawn, sizes, strict=True)]


@module
class MLP:
    """Dense layers with a nonlinearity between them."""

    layers: tuple[Dense, ...]
    activation: str = static()

    @staticmethod
    def make(
        key: Array,
        sizes: Sequence[int],
        activation: str,
        last_gain: Array | float,
        hidden_gain: Array | float = HIDDEN_GAIN,
    ) -> "MLP":
        """Orthogonal weights, with a gain for hidden layers and one for the last."""
        keys = jax.random.split(key, len(sizes) - 1)
        gains = [hidden_gain] * (len(sizes) - 2) + [last_gain]
        drawn = normals(keys, [i * o for i, o in itertools.pairwise(sizes)])
        layers = [
            Dense.of_normal(numbers, i, o, gain)
            for numbers, i, o, gain in zip(drawn, sizes[:-1], sizes[1:], gains, strict=True)
        ]
        return MLP(tuple(layers), activation)

    def __call__(self, x: Array) -> Array:
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.activation](layer(x))
        return self.layers[-1](x)


@module
class GRU:
    """A gated recurrent unit (Cho et al. 2014): the new hidden state from an input and the old.

    r, z = σ(x W + b + h U + c) for each,    n = tanh(x W + b + r ⊙ (h U + c))
    h' = (1 − z) ⊙ n + z ⊙ h
    """

    of_input: Dense  # the three gates beside each other: r, z, n
    of_hidden: Dense

    @staticmethod
    def make(key: Array, inputs: int, units: int) -> "GRU":
        input_key, hidden_key = jax.random.split(key)
        return GRU(
            Dense.orthogonal(input_key, inputs, 3 * units, 1.0),
            Dense.orthogonal(hidden_key, units, 3 * units, 1.0),
        )

    @property
    def units(self) -> int:
        return self.of_hidden.weight.shape[0]

    def __call__(self, x: Array, hidden: Array) -> Array:
        of_input, of_hidden = self.of_input(x), self.of_hidden(hidden)
        units = self.units
        reset = jax.nn.sigmoid(of_input[:units] + of_hidden[:units])
        keep = jax.nn.sigmoid(of_input[units : 2 * units] + of_hidden[units : 2 * units])
        new = jnp.tanh(of_input[2 * units :] + reset * of_hidden[2 * units :])
        return (1.0 - keep) * new + keep * hidden


@module
class Convolution:
    """Square kernels over an image [height, width, channels], without padding."""

    weight: Array  # [kernel, kernel, in, out]
    bias: Array
    stride: int = static()

    @staticmethod
    def orthogonal(
        key: Array, inputs: int, outputs: int, kernel: int, stride: int
    ) -> "Convolution":
        rows = kernel * kernel * inputs
        normal = jax.random.normal(key, (rows * outputs,))
        matrix = orthogonal_factor(normal, rows, outputs)
        weight = HIDDEN_GAIN * matrix.reshape(kernel, kernel, inputs, outputs)
        return Convolution(weight, jnp.zeros(outputs), stride)

    def __call__(self, image: Array) -> Array:
        """The image under the kernels; on a CPU, as one matrix product over all patches.

        The gradient of XLA's own convolution is an order of magnitude slower there, inside of a
        scan, and a vmap over seeds makes it slower still (bench/convolutions.py).
        """
        if jax.default_backend() == "cpu":
            kernel, _, inputs, outputs = self.weight.shape
            matrix = self.weight.reshape(kernel * kernel * inputs, outputs)
            return patches(image, kernel, self.stride) @ matrix + self.bias
        strides = (self.stride, self.stride)
        layout = ("NHWC", "HWIO", "NHWC")
        made = lax.conv_general_dilated(
            image[None], self.weight, strides, "VALID", dimension_numbers=layout
        )
        return made[0] + self.bias


def patches(image: Array, kernel: int, stride: int) -> Array:
    """Each kernel × kernel part of an image, every ``stride`` pixels, as a row of its numbers."""
    height, width = ((side - kernel) // stride + 1 for side in image.shape[:2])
    parts = [
        image[row : row + stride * height : stride, column : column + stride * width : stride]
        for row in range(kernel)
        for column in range(kernel)
    ]
    return jnp.concatenate([part[:height, :width] for part in parts], axis=-1)


# (outputs, kernel, stride) of each layer: those of Mnih et al. 2015 for images of 36 pixels or
# more, those of Young & Tian 2019 (MinAtar) for smaller ones.
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
SMALL = ((16, 3, 1),)
SMALLEST_FOR_NATURE = 36


@module
class ImageEncoder:
    """Convolutions with ReLU, flattened. uint8 images are scaled to [0, 1]."""

    layers: tuple[Convolution, ...]

    @staticmethod
    def make(key: Array, shape: tuple[int, ...]) -> "ImageEncoder":
        height, width, channels = channels_last(shape)
        plan = NATURE if min(height, width) >= SMALLEST_FOR_NATURE else SMALL
        inputs = (channels, *(outputs for outputs, _, _ in plan))
        keys = jax.random.split(key, len(plan))
        return ImageEncoder(
            tuple(
                Convolution.orthogonal(k, i, outputs, min(kernel, height, width), stride)
                for k, i, (outputs, kernel, stride) in zip(keys, inputs, plan, strict=False)
            )
        )

    def num_features(self, shape: tuple[int, ...]) -> int:
        """Length of the vector that is made of an image of that shape."""
        height, width, channels = channels_last(shape)
        for layer in self.layers:
            kernel, _, _, channels = layer.weight.shape
            height, width = ((side - kernel) // layer.stride + 1 for side in (height, width))
        return height * width * channels

    def __call__(self, image: Array) -> Array:
        x = image.astype(jnp.float32)
        if image.dtype == jnp.uint8:
            x = x / 255.0
        if channels_last(image.shape) != image.shape:
            x = jnp.moveaxis(x, 0, -1)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x.reshape(-1)


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(height, width, channels) of an image whose channels, the fewest, are first or last."""
    first, middle, last = shape
    return (middle, last, first) if first < min(middle, last) else shape
