"""Compiled programs that later processes take up as they are.

JAX's own cache saves compiling, but a program has to be traced and lowered before it is found,
which takes a second of Python. Here a program is found by what it was traced from: the sources, the
settings that give shapes, the environment's name, the versions, the machine. Numbers are not among
them: they are arguments of the programs.

A program from here is the very one that an earlier process ran, so its results are the same bits.
Whatever is not certain to be the same (an environment or an algorithm of the user's own, packages
that were imported by name) is compiled as usual, and so is what JAX's cache has already. Opening
such a file runs what is in it, as does JAX's cache: both lie in the user's own cache folder, and a
file of another owner is left alone.
"""

import contextlib
import hashlib
import importlib.util
import os
import pickle
import platform
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, final

import jax
import jaxlib.version
import numpy as np
from jax.experimental import serialize_executable

from trimtab.training.devices import cache_folder, cores
from trimtab.training.memory import return_freed

MOST_BYTES = 128 * 1024**2  # of all kept programs; those that were not used for longest go first
_CACHE_HIT = "/jax/compilation_cache/cache_hits"
_DIGEST_BYTES = hashlib.sha256().digest_size


Name = tuple[Any, ...]  # of a program: its kind, and the numbers that it is made for


@final
class KeptPrograms:
    """The programs of one description: each is loaded if it was kept, else compiled and kept.

    ``lower`` gives the lowered program of a name. Without a description nothing is kept.
    """

    def __init__(self, description: str | None, lower: Callable[[Name], Any]):
        folder = cache_folder()
        self._folder = folder / "kept" if folder and description else None
        self._digest = hashlib.sha256((description or "").encode())
        self._lower = lower
        self._ready: dict[Name, Any] = {}

    def kept(self, name: Name) -> Any:
        """The program if it need not be compiled, else None."""
        if name not in self._ready and (program := self._load(name)) is not None:
            self._ready[name] = program
        return self._ready.get(name)

    def all_of(self, names: Sequence[Name]) -> list[Any]:
        """Several programs: while one is compiled, the next is traced."""
        # XLA loads and compiles outside of Python's lock; tracing and lowering hold it.
        with ThreadPoolExecutor(len(names)) as pool:
            wanted = [
                name
                for name, found in zip(names, pool.map(self.kept, names), strict=True)
                if found is None
            ]
        # One at a time: each fills the cores by itself, and several would add up their memory.
        with ThreadPoolExecutor(1) as compiler:
            made = [compiler.submit(self._compiled, name, self._lower(name)) for name in wanted]
            self._ready |= {name: one.result() for name, one in zip(wanted, made, strict=True)}
        return [self._ready[name] for name in names]

    def _load(self, name: Name) -> Any:
        if self._folder is None:
            return None
        path = self._path(name)
        try:
            if path.stat().st_uid != os.getuid():
                return None
            content = path.read_bytes()
            digest, content = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if hashlib.sha256(content).digest() != digest:
                raise ValueError("damaged")
            devices, *parts = pickle.loads(content)
            program = serialize_executable.deserialize_and_load(
                *parts, execution_devices=jax.devices()[:devices]
            )
            os.utime(path)
            return program
        except FileNotFoundError:
            return None
        except Exception:  # whatever is wrong with it, compiling goes on
            with contextlib.suppress(OSError):
                path.unlink()
            return None

    def _compiled(self, name: Name, lowered: Any) -> Any:
        before = _hits.count
        program = lowered.compile()
        # What came from JAX's cache cannot be written again, nor what has run.
        if self._folder is not None and _hits.count == before:
            with contextlib.suppress(Exception):  # a full disk, a program that holds constants
                self._keep(self._path(name), program)
        return_freed()
        return program

    def _keep(self, path: Path, program: Any) -> None:
        devices = len(program.runtime_executable().local_devices())
        content = pickle.dumps((devices, *serialize_executable.serialize(program)))
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_bytes(hashlib.sha256(content).digest() + content)
        aside.replace(path)
        make_room(path.parent, MOST_BYTES)

    def _path(self, name: Name) -> Path:
        assert self._folder is not None
        digest = self._digest.copy()
        digest.update(repr(name).encode())
        return self._folder / f"{name[0]}-{digest.hexdigest()[:40]}"


def description_of(packages: Sequence[str], algorithm: Any, settings: Any) -> str | None:
    """All that programs depend on but their arguments' values, as text.

    ``packages`` are those whose code is traced, beside trimtab; ``settings`` is whatever else
    decides. None if the algorithm is not trimtab's own.
    """
    whole = algorithm
    while whole is not None:  # of an algorithm that wraps another, both
        if not type(whole).__module__.startswith("trimtab."):
            return None
        whole = vars(whole).get("algorithm")
    leaves, structure = jax.tree.flatten(algorithm)
    arrays = [(np.shape(leaf), str(np.asarray(leaf).dtype)) for leaf in leaves]
    chosen = {name: value for name, value in jax.config.values.items() if "cache" not in name}
    device = jax.devices()[0]
    parts = [
        *(stamp(package) for package in ("trimtab", *packages)),
        (jax.__version__, jaxlib.version.__version__, np.__version__, sys.version),
        (structure, arrays, settings),
        sorted(chosen.items(), key=lambda item: item[0]),
        (os.environ.get("XLA_FLAGS"), cores(), processor()),
        (device.client.platform_version, device.device_kind),
    ]
    return "\n".join(map(str, parts))


def stamp(package: str) -> str:
    """Tells whether any source of an installed package has changed."""
    spec = importlib.util.find_spec(package)
    digest = hashlib.sha256(package.encode())
    for root in (spec and spec.submodule_search_locations) or ():
        for folder, folders, files in os.walk(root):
            folders.sort()
            for file in sorted(files):
                if file.endswith(".py"):
                    found = os.stat(os.path.join(folder, file))
                    digest.update(f"{folder}/{file} {found.st_size} {found.st_mtime_ns}".encode())
    return digest.hexdigest()


def processor() -> str:
    """What programs for a CPU are compiled for."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found = [one for one in lines if one.startswith(("model name", "flags", "Features"))]
        if found:
            return "\n".join(sorted(set(found)))
    return f"{platform.platform()} {platform.processor()} {platform.node()}"


class _Hits(threading.local):
    """Of each thread, how many programs it took from JAX's cache."""

    count = 0


_hits = _Hits()


def _heard(event: str, **_: Any) -> None:
    if event == _CACHE_HIT:
        _hits.count += 1


jax.monitoring.register_event_listener(_heard)


def make_room(folder: Path, most: int) -> None:
    """Delete what was not used for longest, until the rest is no larger than ``most`` bytes."""
    found = [(path.stat(), path) for path in folder.iterdir()]
    total = 0
    for status, path in sorted(found, key=lambda one: -one[0].st_mtime_ns):
        total += status.st_size
        if total > most:
            path.unlink(missing_ok=True)
