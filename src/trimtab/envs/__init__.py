"""Environments: fused JAX simulators under one protocol.

Nothing here imports JAX or a simulator until an environment is made.
"""

from trimtab.envs.make import make
from trimtab.envs.registry import EnvEntry, list_environments

__all__ = ["EnvEntry", "list_environments", "make"]
