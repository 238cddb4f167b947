"""Checkpoints: a folder of uncompressed ``.npz`` files and a ``manifest.json`` with their digests.

Exact (every leaf comes back bit for bit), open to inspection (``numpy.load`` reads the files), safe
to open (nothing is ever unpickled) and honest (a flipped bit anywhere is noticed and named).

A save writes a sibling folder and renames it into place, so that a kill at any instant leaves the
old checkpoint or the new one to load:

    .latest.partial-<pid>/   being written; worthless until renamed, removed by the next save
    latest.previous/         the one before, which stands in for the instant between two renames;
                             it is kept on request, for the day when the latest is damaged
    latest/                  the checkpoint

JAX is needed to take a state apart and to put it together (``leaves``), not to write or to look.
"""

import contextlib
import functools
import glob
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from trimtab.errors import CheckpointError, DamagedCheckpointError
from trimtab.log.writer import from_json, to_json
from trimtab.training.npzfile import is_plain_path, read_npz, write_npz

if TYPE_CHECKING:
    from trimtab.training.leaves import Form, StoredLeaf

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_OWN_FIELDS = ("digest", "format_version", "versions", "nproc", "cores", "files", "leaves")
_NO_DIGEST = "0" * 64
_LARGEST_MANIFEST = 256 * 1024 * 1024
_LINES_SHOWN = 12
_Result = TypeVar("_Result")


def save(
    folder: Path, tree: Any, manifest: Mapping[str, Any], *, keep_previous: bool = False
) -> None:
    """Write ``tree`` and the caller's ``manifest`` to ``folder``, replacing what is there.

    Raises OSError if the disk refuses; the checkpoint that was there then still loads.
    """
    from trimtab.training.leaves import snapshot

    write(folder, snapshot(tree), manifest, keep_previous=keep_previous)


def load(
    folder: Path, like: Any, *, expect: Mapping[str, Any], partial: bool = False
) -> tuple[Any, dict[str, Any]]:
    """The saved state in the structure of ``like``, and the manifest.

    ``like`` gives each leaf's shape and type. ``expect`` holds fields that the manifest must agree
    with, such as ``{"environment": id, "network": {path: shape}}``. With ``partial``, what ``like``
    does not mention is left unread, as when a policy is wanted without its environments.
    """
    from trimtab.training.leaves import forms_of, restored

    wanted = forms_of(like)

    def read(source: Path) -> tuple[Any, dict[str, Any]]:
        manifest = _checked_manifest(source)
        _require_same_run(source, expect, manifest)
        _require_same_leaves(source, wanted, manifest["leaves"], partial)
        arrays = _read_arrays(source, wanted, manifest)
        keys = {name: str(manifest["leaves"][name].get("key")) for name in wanted}
        try:
            return restored(like, arrays, keys), manifest
        except CheckpointError as error:
            raise CheckpointError(f"Checkpoint {source}: {error}") from error

    return _while_unchanged(Path(folder), read)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a checkpoint says about itself: the caller's fields, versions, and every leaf."""
    return _while_unchanged(Path(folder), _checked_manifest)


def exists(folder: Path) -> bool:
    """Whether there is a checkpoint at ``folder``, whole or not."""
    return bool(folder.name) and any(map(os.path.isdir, (folder, previous(folder))))


def previous(folder: Path) -> Path:
    """Where the checkpoint that ``folder`` held before is kept."""
    return folder.with_name(f"{folder.name}.previous")


@functools.cache
def library_versions(*names: str) -> dict[str, str]:
    """The versions of Python and of the packages ``names``, as far as they are installed."""
    versions = {"python": platform.python_version()}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


# Writing


def write(
    folder: Path,
    leaves: Iterable["StoredLeaf"],
    manifest: Mapping[str, Any],
    *,
    keep_previous: bool = False,
) -> None:
    """The part of ``save`` that needs no JAX, and so may run beside it: files and renames."""
    folder = Path(folder)
    described = _described(manifest)
    _require_replaceable(folder)
    files: dict[str, dict[str, np.ndarray]] = {}
    entries: dict[str, Any] = {}
    for leaf in leaves:
        file_name, member = _place(leaf.name)
        files.setdefault(file_name, {})[member] = leaf.array
        entries[leaf.name] = {"dtype": leaf.form.dtype, "shape": leaf.form.shape}
        if leaf.key_implementation is not None:
            entries[leaf.name]["key"] = leaf.key_implementation
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder)
    aside = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    try:
        aside.mkdir()
        written = {name: write_npz(aside / name, arrays) for name, arrays in files.items()}
        with (aside / MANIFEST).open("xb") as file:
            file.write(_signed({**described, "files": written, "leaves": entries}))
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(aside)
        _move_into_place(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _remove_leftovers(folder)
    if not keep_previous:
        shutil.rmtree(previous(folder), ignore_errors=True)


def _place(name: str) -> tuple[str, str]:
    """The file and the member that hold the leaf ``name``."""
    part, _, member = name.partition("/")
    return f"{part}.npz", member or "value"


def _described(manifest: Mapping[str, Any]) -> dict[str, Any]:
    reserved = [name for name in manifest if name in _OWN_FIELDS]
    if reserved:
        raise ValueError(f"A checkpoint sets {', '.join(reserved)} itself; use another name.")
    return {
        "digest": _NO_DIGEST,
        "format_version": FORMAT_VERSION,
        **to_json(manifest),
        "versions": library_versions("trimtab", "jax", "jaxlib", "numpy"),
        "nproc": os.environ.get("NPROC"),  # pins the cores that JAX's results on the CPU depend on
        "cores": os.cpu_count(),
    }


def _signed(document: Mapping[str, Any]) -> bytes:
    """The manifest with its own digest: that of its bytes while zeros stood in its place."""
    data = json.dumps(document, indent=1, allow_nan=False).encode("ascii") + b"\n"
    digest = hashlib.sha256(data).hexdigest()
    return data.replace(_NO_DIGEST.encode(), digest.encode(), 1)


def _move_into_place(aside: Path, folder: Path) -> None:
    """aside → folder → previous → leftover, from the last to the first: none is ever without."""
    leftover = folder.with_name(f".{folder.name}.partial-old")
    moved = []
    try:
        for source, target in ((previous(folder), leftover), (folder, previous(folder))):
            if folder.exists() and source.exists():
                os.rename(source, target)
                moved.append((target, source))
        os.rename(aside, folder)
    except OSError:
        with contextlib.suppress(OSError):
            for target, source in reversed(moved):
                os.rename(target, source)
        raise
    _sync_folder(folder.parent)


def _remove_leftovers(folder: Path) -> None:
    """What saves that were killed left behind, and the one before the previous."""
    for leftover in folder.parent.glob(f".{glob.escape(folder.name)}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _require_replaceable(folder: Path) -> None:
    """Replacing a folder deletes it, so it must hold nothing but a checkpoint."""
    if not folder.exists():
        return
    found = "not a folder"
    if folder.is_dir():
        others = [p.name for p in folder.iterdir() if p.name != MANIFEST and p.suffix != ".npz"]
        if not others:
            return
        found = f"a folder that holds other things ({', '.join(sorted(others)[:3])})"
    raise CheckpointError(
        f"A checkpoint cannot be saved as {folder}, which is {found}. Give another path."
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Reading


def _while_unchanged(folder: Path, read: Callable[[Path], _Result]) -> _Result:
    """``read`` of the checkpoint; again if a training run replaced it in the middle of that."""
    for _ in range(5):
        source, identity = _source(folder)
        try:
            return read(source)
        except CheckpointError:
            if _source(folder) == (source, identity):
                raise
    return read(_source(folder)[0])


def _source(folder: Path) -> tuple[Path, tuple[int, int]]:
    """The folder that holds the checkpoint just now, and which folder on the disk that is."""
    for candidate in (folder, previous(folder), folder):  # it may move between the first two
        with contextlib.suppress(OSError):
            found = candidate.stat()
            return candidate, (found.st_ino, found.st_mtime_ns)
    raise _damage(folder, "there is no such folder.")


def set_aside(folder: Path) -> Path:
    """Move a damaged checkpoint out of the way of the one before it; where to."""
    aside = folder.with_name(f"{folder.name}.damaged")
    if folder.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(folder, aside)
        _sync_folder(folder.parent)
    return aside


def _damage(folder: Path, sentence: str) -> CheckpointError:
    """An error about the checkpoint; it names the run's other checkpoints, which may be whole."""
    others: list[str] = []
    with contextlib.suppress(OSError):
        siblings = (path for path in folder.parent.iterdir() if not path.name.startswith("."))
        others = sorted(str(p) for p in siblings if p != folder and (p / MANIFEST).is_file())
    advice = f" Try the other checkpoint: {' or '.join(others)}." if others else ""
    return DamagedCheckpointError(f"Checkpoint {folder}: {sentence}{advice}")


def _checked_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        if not path.is_file():
            raise _damage(folder, f"{MANIFEST} is missing, so it is not a whole checkpoint.")
        if path.stat().st_size > _LARGEST_MANIFEST:
            raise _damage(folder, f"{MANIFEST} is larger than {_LARGEST_MANIFEST} bytes.")
        data = path.read_bytes()
        document = json.loads(data)
    except OSError as error:
        raise _damage(folder, f"{MANIFEST} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise _damage(folder, f"{MANIFEST} is damaged: it is not JSON.") from error
    version = document.get("format_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise CheckpointError(
            f"Checkpoint {folder}: it has the format {version}, and this trimtab reads up to "
            f"{FORMAT_VERSION}. Install a newer trimtab."
        )
    if version != FORMAT_VERSION or not _has_its_digest(data, str(document.get("digest"))):
        raise _damage(folder, f"{MANIFEST} is damaged: its digest does not match its content.")
    if not _is_well_formed(document):
        raise _damage(folder, f"{MANIFEST} is refused: it does not describe files and leaves.")
    return from_json(document)


def _has_its_digest(data: bytes, digest: str) -> bool:
    unsigned = data.replace(digest.encode(errors="replace"), _NO_DIGEST.encode(), 1)
    return hashlib.sha256(unsigned).hexdigest() == digest


def _is_well_formed(document: Mapping[str, Any]) -> bool:
    """A digest is no signature: whoever made the file may have written anything into it."""
    files, leaves = document.get("files"), document.get("leaves")
    return (
        isinstance(files, dict)
        and isinstance(leaves, dict)
        and all(isinstance(entry, dict) for entry in (*files.values(), *leaves.values()))
        and all(is_plain_path(name) for name in leaves)
        and set(files) == {_place(name)[0] for name in leaves}
    )


def _require_same_run(folder: Path, expect: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    lines = []
    for name, wanted in to_json(expect).items():
        found = to_json(manifest.get(name))
        if isinstance(wanted, dict) and isinstance(found, dict):
            pairs = {key: (wanted.get(key), found.get(key)) for key in {**wanted, **found}}
        else:
            pairs = {name: (wanted, found)}
        lines += [
            f"{key}: this run has {_shown(here)}, the checkpoint {_shown(there)}"
            for key, (here, there) in pairs.items()
            if here != there
        ]
    _refuse_differences(folder, "it belongs to another environment or network.", lines)


def _require_same_leaves(
    folder: Path, wanted: Mapping[str, "Form"], entries: Mapping[str, Any], partial: bool
) -> None:
    lines = []
    for name in wanted if partial else {**wanted, **entries}:
        here = str(wanted[name]) if name in wanted else "nothing"
        entry = entries.get(name)
        there = f"{entry.get('dtype')} {_shown(entry.get('shape'))}" if entry else "nothing"
        if here != there:
            lines.append(f"{name}: this run has {here}, the checkpoint {there}")
    _refuse_differences(folder, "its state has another form.", lines)


def _refuse_differences(folder: Path, sentence: str, lines: list[str]) -> None:
    if not lines:
        return
    shown = lines[:_LINES_SHOWN]
    if len(lines) > _LINES_SHOWN:
        shown.append(f"and {len(lines) - _LINES_SHOWN} more")
    raise CheckpointError(
        "\n  ".join([f"Checkpoint {folder}: {sentence} What differs:", *shown])
        + "\nUse the settings that it was saved with, or start a new run."
    )


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return str(tuple(value)) if isinstance(value, list) else str(value)


def _read_arrays(
    folder: Path, wanted: Mapping[str, "Form"], manifest: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for file_name in dict.fromkeys(_place(name)[0] for name in wanted):
        held = {name: _place(name)[1] for name in manifest["leaves"]}
        held = {name: member for name, member in held.items() if _place(name)[0] == file_name}
        forms = {
            member: (wanted[name].stored_dtype, wanted[name].stored_shape)
            for name, member in held.items()
            if name in wanted
        }
        try:
            read = read_npz(folder / file_name, manifest["files"][file_name], held.values(), forms)
        except OSError as error:
            raise _damage(
                folder, f"{file_name} cannot be read: {error.strerror or error}."
            ) from error
        except ValueError as error:
            raise _damage(folder, f"{file_name} {error}.") from error
        arrays |= {name: read[member] for name, member in held.items() if member in read}
    return arrays
