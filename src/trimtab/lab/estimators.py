"""Variance, effective sample size and noise scale, from the moments of many batches.

Batches b = 1 … M are independent; lanes within one are exchangeable; steps of a lane may be alike
and need not have one mean. With K(t, t') the covariance (summed over parameters) of a lane's
gradients at steps t and t', and C(ℓ) = Σ_t K(t, t+ℓ),

    Var(ḡ) = [C(0) + 2 Σ_{ℓ>0} C(ℓ)] / (N T²) + between lanes
             individual   covariance            0 if lanes are independent

Products of means are estimated from pairs of different batches only, so that every term is
unbiased; their sum is exactly the sample variance of the batch means.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from trimtab.lab.intervals import Estimate, jackknife
from trimtab.lab.moments import BatchMoments, lag_products


@dataclasses.dataclass(frozen=True)
class Moments:
    """``BatchMoments`` of M batches in J equal groups; step means are summed over each group."""

    lanes: int
    lane_products: np.ndarray  # [M, L + 1]
    step_products: np.ndarray  # [M, L + 1]
    lane_square: np.ndarray  # [M]
    step_square: np.ndarray  # [M]
    cluster_variance: np.ndarray  # [M]
    independent_variance: np.ndarray  # [M]
    step_sums: np.ndarray  # [J, T, P]

    @staticmethod
    def joined(lanes: int, groups: Sequence[BatchMoments]) -> "Moments":
        """From each group's moments: leaves [M/J, ...], step means already summed [T, P]."""

        def column(name: str) -> np.ndarray:
            parts = [np.asarray(getattr(group, name), np.float64) for group in groups]
            return np.concatenate(parts)

        return Moments(
            lanes,
            column("lane_products"),
            column("step_products"),
            column("lane_square"),
            column("step_square"),
            column("cluster_variance"),
            column("independent_variance"),
            np.stack([np.asarray(group.step_means) for group in groups]),
        )

    @property
    def batches(self) -> int:
        return len(self.cluster_variance)

    @property
    def groups(self) -> int:
        return len(self.step_sums)

    @property
    def steps(self) -> int:
        return self.step_sums.shape[1]

    @property
    def samples(self) -> int:
        return self.lanes * self.steps

    def mean_gradient(self) -> np.ndarray:
        """ḡ over all batches."""
        return self.step_sums.sum(axis=0, dtype=np.float64).mean(axis=0) / self.batches


@dataclasses.dataclass(frozen=True)
class Split:
    """The parts of Var(ḡ) and what belongs to them; arrays where a group was left out."""

    variance: np.ndarray
    individual: np.ndarray
    covariance: np.ndarray  # within lanes
    between_lanes: np.ndarray
    squared_mean: np.ndarray  # |G|²
    lag_covariance: np.ndarray  # [L + 1] C(ℓ) / (T − ℓ): the mean covariance at a lag


def split(moments: Moments, left_out: int | None = None) -> Split:
    """The split of all batches, or of those outside of one group."""
    per_group = moments.batches // moments.groups
    kept = np.ones(moments.batches, bool)
    total = moments.step_sums.sum(axis=0, dtype=np.float64)
    if left_out is not None:
        kept[left_out * per_group : (left_out + 1) * per_group] = False
        total = total - moments.step_sums[left_out]
    count, steps, lanes = int(kept.sum()), moments.steps, moments.lanes
    # Σ_{b≠b'} ⟨s_b, s_b'⟩ = ‖Σ_b s_b‖² − Σ_b ‖s_b‖², for each lag, and for all of them together.
    pairs = count * (count - 1)
    lag_means = (lag_products(total) - moments.step_products[kept].sum(axis=0)) / pairs
    square_means = (float((total.sum(axis=0) ** 2).sum()) - moments.step_square[kept].sum()) / pairs
    lag_sums = moments.lane_products[kept].mean(axis=0) - lag_means
    within = moments.lane_square[kept].mean() - square_means  # C(0) + 2 Σ_{ℓ>0} C(ℓ)
    individual = lag_sums[0] / (lanes * steps**2)
    covariance = (within - lag_sums[0]) / (lanes * steps**2)
    variance = (moments.step_square[kept].mean() - square_means) / steps**2
    return Split(
        variance,
        individual,
        covariance,
        variance - individual - covariance,
        square_means / steps**2,
        lag_sums / (steps - np.arange(len(lag_sums))),
    )


@dataclasses.dataclass(frozen=True)
class Figures:
    """What is reported of one head's gradient, each with its interval.

    ``signal`` is |G|² and ``signal_to_noise`` |G|² / Var(ḡ). ``noise_scale`` is B Var(ḡ) / |G|², in
    transitions of the kind of this batch; its ``cluster`` form takes numerator and denominator
    from single batches, each averaged before the division.
    """

    variance: Estimate
    individual: Estimate
    covariance: Estimate
    between_lanes: Estimate
    cluster_variance: Estimate
    independent_variance: Estimate
    design_effect: Estimate
    cluster_design_effect: Estimate
    effective_samples: Estimate
    signal: Estimate
    signal_to_noise: Estimate
    noise_scale: Estimate
    cluster_noise_scale: Estimate
    lag_correlations: tuple[Estimate, ...]  # of the lags 0 … L


def figures(moments: Moments) -> Figures:
    """All estimates of one head, with intervals by the jackknife over groups of batches."""
    whole = split(moments)
    parts = [split(moments, group) for group in range(moments.groups)]
    samples = moments.samples
    per_group = moments.batches // moments.groups

    def left_out_means(values: np.ndarray) -> np.ndarray:
        groups = values.reshape(moments.groups, per_group).sum(axis=1)
        return (groups.sum() - groups) / (moments.batches - per_group)

    def of(name: str, positive: bool = False) -> Estimate:
        left_out = np.array([getattr(part, name) for part in parts])
        return jackknife(getattr(whole, name), left_out, positive=positive)

    def ratio(
        above: tuple[float, np.ndarray], below: tuple[float, np.ndarray], positive: bool = False
    ) -> Estimate:
        with np.errstate(divide="ignore", invalid="ignore"):
            left_out = above[1] / below[1]
            value = float(np.float64(above[0]) / below[0])
        return jackknife(value, left_out, positive=positive)

    def pair(name: str) -> tuple[float, np.ndarray]:
        return getattr(whole, name), np.array([getattr(part, name) for part in parts])

    def mean_pair(values: np.ndarray) -> tuple[float, np.ndarray]:
        return float(values.mean()), left_out_means(values)

    cluster = mean_pair(moments.cluster_variance)
    independent = mean_pair(moments.independent_variance)
    squares = moments.step_square / moments.steps**2  # ‖ḡ_b‖²
    single_signal = mean_pair(squares - moments.cluster_variance)
    design = ratio(pair("variance"), pair("individual"), positive=True)
    signal_to_noise = ratio(pair("squared_mean"), pair("variance"))
    single = ratio(single_signal, cluster)
    return Figures(
        variance=of("variance", positive=True),
        individual=of("individual", positive=True),
        covariance=of("covariance"),
        between_lanes=of("between_lanes"),
        cluster_variance=jackknife(*cluster, positive=True),
        independent_variance=jackknife(*independent, positive=True),
        design_effect=design,
        cluster_design_effect=ratio(cluster, independent, positive=True),
        effective_samples=design.inverse().scaled(samples),
        signal=of("squared_mean"),
        signal_to_noise=signal_to_noise,
        noise_scale=signal_to_noise.inverse().scaled(samples),
        cluster_noise_scale=single.inverse().scaled(samples),
        lag_correlations=_lag_correlations(whole, parts),
    )


def _lag_correlations(whole: Split, parts: Sequence[Split]) -> tuple[Estimate, ...]:
    """C(ℓ)/(T − ℓ) over C(0)/T."""
    value = whole.lag_covariance / whole.lag_covariance[0]
    left_out = np.stack([part.lag_covariance / part.lag_covariance[0] for part in parts])
    return tuple(jackknife(float(value[lag]), left_out[:, lag]) for lag in range(len(value)))


def two_batch_estimates(
    small_square: float, big_square: float, small: int, big: int
) -> tuple[float, float]:
    """|G|² and S = tr Σ from the squared lengths of two batches' gradients (McCandlish 2018).

        |G|² ≈ (B_b |G_b|² − B_s |G_s|²) / (B_b − B_s),   S ≈ (|G_s|² − |G_b|²) / (1/B_s − 1/B_b)

    Each is unbiased, and their ratio S/|G|² is not: average each before dividing. A small batch
    must be made of whole lanes, or what is alike within a lane is missed.
    """
    signal = (big * big_square - small * small_square) / (big - small)
    noise = (small_square - big_square) / (1 / small - 1 / big)
    return signal, noise
