"""What rules look at, and what they answer with."""

import dataclasses
from typing import Any

from trimtab.configuration import Configuration
from trimtab.explain.geometry import Geometry
from trimtab.spaces import EnvSpec

# Where rules are from.
ENGSTROM = "Engstrom et al. 2020, Implementation Matters in Deep RL (arXiv 2005.12729)"
ANDRYCHOWICZ = "Andrychowicz et al. 2020, What Matters in On-Policy RL (arXiv 2006.05990)"
DETAILS = "Huang et al. 2022, The 37 Implementation Details of PPO"
NOISE_SCALE = "McCandlish et al. 2018, Large-Batch Training (arXiv 1812.06162)"
STAGGER = "Bharthulwar et al. 2025, staggered resets (arXiv 2511.21011)"
MAYOR = "Mayor et al. 2025, parallel environments (arXiv 2506.03404)"
WILLIAMS = "Williams 1992, Simple Statistical Gradient-Following Algorithms (REINFORCE)"
HENDERSON = "Henderson et al. 2018, Deep RL That Matters (arXiv 1709.06560)"
GAE = "Schulman et al. 2016, Generalised Advantage Estimation (arXiv 1506.02438)"
TIME_LIMITS = "Pardo et al. 2018, Time Limits in RL (arXiv 1712.00378)"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What rules look at."""

    configuration: Configuration
    geometry: Geometry
    spec: EnvSpec | None = None  # of the environment as the run sees it, where it is known
    costs: Any = None  # a Costs, where they were counted

    @property
    def training(self) -> Any:
        return self.configuration.training

    @property
    def algorithm(self) -> Any:
        return self.configuration.algorithm


@dataclasses.dataclass(frozen=True)
class Caution:
    """One thing to think about."""

    rule: str
    reason: str
    remedy: str
    source: str
