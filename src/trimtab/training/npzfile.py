"""``.npz`` files that are written the same for the same arrays, and read without trust.

``numpy.load`` reads them too. Read here, a file must have the size and the SHA-256 that its
manifest says, and exactly the members that are expected, of the expected types and shapes, stored
as they are. A digest is no signature: a stranger's file may come with a stranger's manifest, so
nothing is unpickled, and nothing larger than was expected is read into memory.
"""

import hashlib
import io
import os
import re
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_PLAIN_PART = re.compile(r"(?!\.+$)[A-Za-z0-9_.~%-]+")


def is_plain_path(name: str) -> bool:
    """A relative path of plain parts, which leads nowhere but down."""
    return all(_PLAIN_PART.fullmatch(part) for part in name.split("/"))


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """A new file with ``arrays``, on the disk when this returns; its SHA-256 and size."""
    with path.open("x+b") as file:
        # numpy.savez would write the time into the file, and takes some names for its own.
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                member = zipfile.ZipInfo(f"{name}.npy")
                with archive.open(member, "w", force_zip64=True) as opened:
                    # Not ascontiguousarray, which would make a 0-d array 1-d.
                    np.lib.format.write_array(opened, array, (1, 0), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
        return _fingerprint(file)


def read_npz(
    path: Path,
    fingerprint: Mapping[str, Any],
    members: Collection[str],
    wanted: Mapping[str, tuple[np.dtype, tuple[int, ...]]],
) -> dict[str, np.ndarray]:
    """The ``wanted`` arrays (read-only) of a file that has the ``fingerprint`` and ``members``.

    Raises OSError, or ValueError with the end of a sentence that begins with the file's name.
    """
    if not path.is_file():
        raise ValueError("is missing")
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size != fingerprint.get("size"):
            raise ValueError(
                f"is damaged: it has {size} bytes, and its manifest says {fingerprint.get('size')}"
            )
        if _fingerprint(file) != fingerprint:
            raise ValueError("is damaged: its SHA-256 is not the one in its manifest")
        try:
            with zipfile.ZipFile(file) as archive:
                _require_members(archive, members)
                return {name: _read(archive, name, *form) for name, form in wanted.items()}
        except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
            raise ValueError(f"is refused: {error}") from error


def _fingerprint(file: io.BufferedRandom | io.BufferedReader) -> dict[str, Any]:
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"sha256": digest, "size": file.seek(0, os.SEEK_END)}


def _require_members(archive: zipfile.ZipFile, members: Collection[str]) -> None:
    """Exactly ``members``, with nothing hidden in their names or by compression.

    Nothing is ever unpacked to the disk, but a name that leads elsewhere shows ill intent; and a
    compressed member may be small in the file and huge in memory.
    """
    found = archive.infolist()
    for member in found:
        if not is_plain_path(member.filename):
            raise ValueError(f"the name of its member {member.filename!r} is not a plain path")
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise ValueError(f"its member {member.filename!r} is compressed")
    if sorted(member.filename for member in found) != sorted(f"{name}.npy" for name in members):
        raise ValueError("its members are not the ones that its manifest describes")


def _read(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    with archive.open(f"{name}.npy") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"its member {name!r} is not an array of format 1.0")
        found_shape, is_fortran_order, found_dtype = np.lib.format.read_array_header_1_0(file)
        if found_dtype.hasobject:
            raise ValueError(f"its member {name!r} holds Python objects, which are never opened")
        if (found_dtype, found_shape) != (dtype, shape):
            raise ValueError(
                f"its member {name!r} is {found_dtype} {found_shape}, "
                f"and {dtype} {shape} was expected"
            )
        expected_bytes = dtype.itemsize * int(np.prod(shape, dtype=object))
        data = file.read(expected_bytes + 1)
        if len(data) != expected_bytes:
            raise ValueError(f"its member {name!r} does not hold {expected_bytes} bytes")
    return np.ndarray(shape, dtype, data, order="F" if is_fortran_order else "C")
