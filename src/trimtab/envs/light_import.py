"""Import gymnax without the drawing libraries, and the layers of flax, that it does not step with.

``import gymnax`` also imports matplotlib.pyplot, seaborn (with pandas and scipy.stats) and all of
flax, for its ``render`` methods and for one decorator. That costs more time than the rest of a
start: on two cores with warm files, 1.2 s for the import, and 0.16 s the way it is done here.

So, only while gymnax is imported, the drawing libraries are stand-ins that load the real thing
when an attribute of theirs is first used; they leave ``sys.modules`` afterwards, so a later
``import seaborn`` is the usual one. ``flax`` becomes a package that runs its own ``__init__`` when
something is asked of it that gymnax did not need. If any of this fails, gymnax is imported plainly.
"""

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_DRAWING = ("matplotlib", "matplotlib.pyplot", "matplotlib.colors", "seaborn")


class _StandIn(types.ModuleType):
    """A module, or something in one, that is imported when an attribute of it is first used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


class _LatePackage(types.ModuleType):
    """A package whose ``__init__`` runs at the first wish that it cannot fulfil.

    Once ``arm`` has hidden its ``__path__``, importing one more submodule is such a wish too, so
    ``__init__`` never runs in the middle of another import of the package.
    """

    def arm(self) -> None:
        self.__dict__["_hidden_path"] = self.__dict__.pop("__path__")

    def __getattr__(self, name: str) -> Any:
        if "_hidden_path" not in self.__dict__:
            raise AttributeError(name)
        self.__dict__["__path__"] = self.__dict__.pop("_hidden_path")
        # From here on an ordinary module.
        self.__class__ = types.ModuleType  # pyright: ignore[reportAttributeAccessIssue]
        spec = self.__spec__
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(self)
        return getattr(self, name)


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Stand-ins for the drawing libraries that are not imported yet."""
    made = {name: _StandIn(name) for name in _DRAWING if name not in sys.modules}
    for name, module in made.items():
        parent, _, child = name.rpartition(".")
        if parent in made:
            setattr(made[parent], child, module)
    sys.modules.update(made)
    try:
        yield
    finally:
        for name, module in made.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


@contextmanager
def _late_package(name: str) -> Iterator[None]:
    """The package is in ``sys.modules`` without having run, unless it was imported before."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        yield
        return
    module = _LatePackage(name)
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    module.__package__ = name
    module.__path__ = spec.submodule_search_locations or []
    sys.modules[name] = module
    yield
    module.arm()


def import_gymnax() -> Any:
    """The gymnax package, imported as lightly as can be."""
    if "gymnax" in sys.modules:
        return sys.modules["gymnax"]
    before = set(sys.modules)
    try:
        with _late_package("flax"), _stand_ins():
            return importlib.import_module("gymnax")
    except Exception:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("flax", "gymnax"):
                del sys.modules[name]
        return importlib.import_module("gymnax")
