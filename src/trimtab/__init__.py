"""trimtab trains reinforcement-learning policies and tells you why they do or do not learn.

Names are loaded when they are first used: importing the package does not import JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.algos.a2c import A2C as A2C
    from trimtab.algos.ppo import PPO as PPO
    from trimtab.algos.reinforce import REINFORCE as REINFORCE
    from trimtab.api import TrainedRun as TrainedRun
    from trimtab.api import load as load
    from trimtab.api import train as train
    from trimtab.checking.check import check_env as check_env
    from trimtab.checking.findings import EnvReport as EnvReport
    from trimtab.checking.findings import Finding as Finding
    from trimtab.collect.episodes import Lanes as Lanes
    from trimtab.collect.episodes import start_lanes as start_lanes
    from trimtab.collect.fused import collect_fused as collect_fused
    from trimtab.envs.make import make as make
    from trimtab.errors import TrimtabError as TrimtabError
    from trimtab.groups import TrainedGroup as TrainedGroup
    from trimtab.groups import load_group as load_group
    from trimtab.groups import train_group as train_group
    from trimtab.importing import import_sb3 as import_sb3
    from trimtab.keys import Purpose as Purpose
    from trimtab.keys import stream as stream
    from trimtab.reproduction import diff as diff
    from trimtab.reproduction import reproduce as reproduce
    from trimtab.types import HostEnv as HostEnv
    from trimtab.types import JaxEnv as JaxEnv
    from trimtab.types import Rollout as Rollout
    from trimtab.types import Step as Step
    from trimtab.types import Transition as Transition

__version__ = "0.1.0"

_HOMES = {
    "PPO": "trimtab.algos.ppo",
    "A2C": "trimtab.algos.a2c",
    "REINFORCE": "trimtab.algos.reinforce",
    "TrainedRun": "trimtab.api",
    "load": "trimtab.api",
    "train": "trimtab.api",
    "check_env": "trimtab.checking.check",
    "EnvReport": "trimtab.checking.findings",
    "Finding": "trimtab.checking.findings",
    "Lanes": "trimtab.collect.episodes",
    "start_lanes": "trimtab.collect.episodes",
    "collect_fused": "trimtab.collect.fused",
    "make": "trimtab.envs.make",
    "TrimtabError": "trimtab.errors",
    "TrainedGroup": "trimtab.groups",
    "load_group": "trimtab.groups",
    "train_group": "trimtab.groups",
    "import_sb3": "trimtab.importing",
    "Purpose": "trimtab.keys",
    "stream": "trimtab.keys",
    "diff": "trimtab.reproduction",
    "reproduce": "trimtab.reproduction",
    "HostEnv": "trimtab.types",
    "JaxEnv": "trimtab.types",
    "Rollout": "trimtab.types",
    "Step": "trimtab.types",
    "Transition": "trimtab.types",
}

__all__ = [*_HOMES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
