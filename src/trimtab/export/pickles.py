"""Arrays out of pickles and files of torch, without running what is in them.

A pickle is a program that names classes to call. Here a name gives a stand-in of ours, or an error:
no class and no function of another package is ever reached, so nothing that a file asks for runs.
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trimtab.errors import ExportError

LARGEST_MEMBER = 2 * 1024**3
_PLAIN_KINDS = "fiub"  # of dtypes: numbers and truth values, never objects
_STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}


class Standin:
    """An object of a class that is not made: its name, and the state that it was given."""

    def __init__(self, *arguments: Any):
        self.arguments, self.state = arguments, {}

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype:
    def __init__(self, code: str, *_: Any):
        self.code, self.order = str(code), "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = str(state[1])

    def real(self) -> np.dtype:
        order: Any = self.order
        dtype = np.dtype(self.code).newbyteorder(order)
        if dtype.kind not in _PLAIN_KINDS:
            raise ValueError(f"an array of {dtype}")
        return dtype


class _Array:
    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, data = state
        if not isinstance(data, bytes):
            raise ValueError("an array of objects")
        flat = np.frombuffer(data, dtype.real())
        self.value = flat.reshape(shape, order="F" if is_fortran else "C")


def _scalar(dtype: _Dtype, data: bytes) -> float:
    return np.frombuffer(data, dtype.real())[0].item()


def _tensor(storage: np.ndarray, offset: int, shape: Any, stride: Any, *_: Any) -> np.ndarray:
    """As torch lays it out; a place outside of the storage is an error."""
    shape, stride = tuple(map(int, shape)), tuple(map(int, stride))
    reach = offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    if offset < 0 or min((*shape, *stride), default=0) < 0 or reach >= max(storage.size, 1):
        raise ValueError("a tensor that lies outside of its data")
    if 0 in shape:
        return np.zeros(shape, storage.dtype)
    bytes_of = tuple(step * storage.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, bytes_of).copy()


_NUMPY: dict[str, Any] = {
    "numpy.dtype": _Dtype,
    "numpy.ndarray": Standin,
    **{
        f"numpy.{core}.multiarray.{name}": made
        for core in ("core", "_core")
        for name, made in {"_reconstruct": lambda *_: _Array(), "scalar": _scalar}.items()
    },
}
_TORCH: dict[str, Any] = {
    "collections.OrderedDict": OrderedDict,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    **{f"torch.{name}": code for name, code in _STORAGES.items()},
}
# What else VecNormalize holds: spaces, and their random generators.
_IGNORED = ("gymnasium.", "gym.", "stable_baselines3.", "numpy.random.")


Storage = Callable[[str, str], np.ndarray]


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes, known: Mapping[str, Any], storage: Storage | None):
        super().__init__(io.BytesIO(data))
        self._known, self._storage = known, storage

    def find_class(self, module: str, name: str) -> Any:
        whole = f"{module}.{name}"
        if whole in self._known:
            return self._known[whole]
        if self._storage is None and whole.startswith(_IGNORED):
            return type("Standin", (Standin,), {"name": whole})
        raise ExportError(f"it asks for {whole}, which weights have no need of")

    def persistent_load(self, pid: Any) -> Any:
        kind, code, key, _, count = pid
        if kind != "storage" or self._storage is None or not isinstance(code, str):
            raise ValueError("an object that is kept elsewhere")
        return self._storage(str(key), code)[: int(count)]


def _read(
    data: bytes,
    what: str,
    known: Mapping[str, Any],
    storage: Storage | None = None,
) -> Any:
    try:
        return _Reader(data, known, storage).load()
    except ExportError as error:
        raise ExportError(f"{what} is refused: {error}. Nothing of it was run.") from error
    except Exception as error:  # a pickle may ask for anything, and fail in as many ways
        raise ExportError(f"{what} is damaged or of an unknown kind ({error}).") from error


def read_pickle(data: bytes, what: str) -> Any:
    """The object in a pickle, with stand-ins for what is not a plain value; see ``plain``."""
    return _read(data, what, _NUMPY)


def plain(value: Any) -> Any:
    """The array or number that a value of ``read_pickle`` is."""
    return value.value if isinstance(value, _Array) else value


def read_torch(data: bytes, what: str) -> Mapping[str, np.ndarray]:
    """The arrays by name in a file that ``torch.save`` wrote of a dictionary of tensors."""
    with opened(data, what) as archive:
        names = archive.namelist()
        roots = [name.removesuffix("data.pkl") for name in names if name.endswith("/data.pkl")]
        if len(roots) != 1:
            raise ExportError(f"{what} is not a file of torch 1.6 or later.")
        (root,) = roots
        if f"{root}byteorder" in names and member(archive, f"{root}byteorder") != b"little":
            raise ExportError(f"{what} was written on a machine of another byte order.")

        def storage(key: str, code: str) -> np.ndarray:
            return np.frombuffer(member(archive, f"{root}data/{key}"), np.dtype(code))

        found = _read(member(archive, f"{root}data.pkl"), what, _TORCH, storage)
    if not isinstance(found, Mapping) or not all(
        isinstance(name, str) and isinstance(array, np.ndarray) for name, array in found.items()
    ):
        raise ExportError(f"{what} is refused: it does not hold tensors by name.")
    return found


def opened(data: bytes, what: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError) as error:
        raise ExportError(f"{what} is not a zip file ({error}).") from error


def member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A file in the archive, if it is there and of a size that can be."""
    try:
        if archive.getinfo(name).file_size > LARGEST_MEMBER:
            raise ExportError(f"{name} would be larger than {LARGEST_MEMBER} bytes.")
        return archive.read(name)
    except (KeyError, zipfile.BadZipFile, RuntimeError, OSError) as error:
        raise ExportError(f"it has no readable {name} ({error}).") from error
