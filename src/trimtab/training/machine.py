"""What a run's numbers depend on beside its settings: the machine, and how JAX was told to use it.

XLA's results on the CPU depend on how many cores share a sum, and on the processor's instructions.
"""

import contextlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

from trimtab.training.devices import cores


def machine_facts() -> dict[str, Any]:
    """The machine that this process computes on; None where nothing is set."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": cores(),
        "nproc": os.environ.get("NPROC"),
        "xla_flags": os.environ.get("XLA_FLAGS"),
        "accelerator": _accelerator(),
    }


def _processor() -> str | None:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n"):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def _accelerator() -> str | None:
    """The kind of device, once JAX has been started and has found one."""
    jax = sys.modules.get("jax")
    if jax is None or jax.default_backend() == "cpu":
        return None
    return str(jax.devices()[0].device_kind)
