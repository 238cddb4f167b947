"""What a run costs: time, compiling, memory and processor, as metrics of each call of the step.

These differ from run to run. Their names begin with ``time/`` or ``system/`` (``MEASURED``), and
whatever compares runs leaves them out.
"""

import resource
import sys
import threading
import time
from typing import Any, final

import jax

from trimtab.log.names import MEASURED as MEASURED

_COMPILED = "/jax/core/compile/backend_compile_duration"
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@final
class Compilations:
    """How many programs this process has compiled or taken from the cache, and how long it took."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        self._lock = threading.Lock()
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == _COMPILED:
            with self._lock:
                self.count += 1
                self.seconds += duration_secs


COMPILATIONS = Compilations()


@final
class Telemetry:
    """The figures of a training loop, since it began and since the last call."""

    def __init__(self) -> None:
        self.begun = self.recorded_at = time.perf_counter()
        self._processor = time.process_time()

    def of_call(self, steps: float) -> dict[str, float]:
        """The metrics of a call that made so many steps, and of the time since the last."""
        now, processor = time.perf_counter(), time.process_time()
        seconds = max(now - self.recorded_at, 1e-9)
        figures = {
            "time/steps_per_second": steps / seconds,
            "time/seconds": now - self.begun,
            "time/compile_count": COMPILATIONS.count,
            "time/compile_seconds": COMPILATIONS.seconds,
            "system/cpu_cores": (processor - self._processor) / seconds,
            "system/memory_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            * _RSS_UNIT,
        }
        device = jax.local_devices()[0].memory_stats()  # None on the CPU
        if device and "peak_bytes_in_use" in device:
            figures["system/device_memory_peak_bytes"] = device["peak_bytes_in_use"]
        self.recorded_at, self._processor = now, processor
        return figures
