"""Records of a run: files with one JSON object a line, which only ever grow at the end.

A line counts once its newline is written. So a process may be killed at any byte: what it leaves is
whole lines and perhaps a torn last one, which readers ignore and the next writer removes.

JSON has no NaN or infinity. They are written as the texts "NaN", "Infinity" and "-Infinity", so
that any JSON parser reads the file, and they are read back here as the numbers they were.
"""

import contextlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, final

from trimtab.errors import RunFolderError

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TAIL_BYTES = 64 * 1024


def to_json(value: Any) -> Any:
    """``value`` as standard JSON can hold it; numpy and JAX arrays become numbers and lists."""
    if type(value) is float and math.isfinite(value):  # as almost all of a run's numbers
        return value
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)  # an IntEnum would otherwise be at the mercy of the encoder
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # numpy and JAX, known by what they do: JAX is not imported here
        return to_json(value.tolist())
    raise TypeError(
        f"{value!r} of type {type(value).__name__} cannot be written as JSON: expected text, "
        "a number, true or false, nothing, or lists, mappings and arrays of these."
    )


def from_json(value: Any) -> Any:
    """The value that ``to_json`` was given: its texts for NaN and infinity become numbers."""
    if isinstance(value, str):
        return _NOT_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_json(item) for item in value]
    return value


def _encode(record: Mapping[str, Any]) -> bytes:
    if not isinstance(record, Mapping):
        raise TypeError(f"{record!r} is not a record: expected a list of mappings.")
    try:
        text = _dumps(record)
    except (TypeError, ValueError):  # something that JSON does not know
        text = _dumps(to_json(record))
    # A lone surrogate, as in the name of a file that is not UTF-8, has no UTF-8 form of its own.
    return text.encode("utf-8", errors="backslashreplace") + b"\n"


def _dumps(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _decode(line: bytes) -> dict[str, Any]:
    record = json.loads(line.decode("utf-8"))
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return from_json(record)


def read_jsonl(path: Path | str) -> list[dict[str, Any]]:
    """Every record of the file. A torn last line is ignored; damage before it is an error."""
    lines = Path(path).read_bytes().split(b"\n")[:-1]
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(_decode(line))
        except (ValueError, RecursionError) as error:
            raise RunFolderError(
                f"{path}: line {number} is damaged ({error}); expected one JSON object a line. "
                "Remove that line, or restore the file from a copy."
            ) from error
    return records


def read_last(path: Path | str, tail_bytes: int = _TAIL_BYTES) -> list[dict[str, Any]]:
    """The records in the file's last ``tail_bytes``, without those that cannot be read.

    For looking at a run from outside, however long it is and whatever has become of it.
    """
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - tail_bytes)
        file.seek(start)
        lines = file.read().split(b"\n")[:-1]
    if start > 0:
        lines = lines[1:]  # the first one was probably cut
    records = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            records.append(_decode(line))
    return records


def read_after(
    path: Path | str, offset: int, most_bytes: int = 1024 * 1024
) -> tuple[list[dict[str, Any]], int]:
    """The whole records after ``offset``, at most about ``most_bytes`` of them, and where they end.

    For following a run while it is written. ``offset`` must be the end of a line.
    """
    try:
        with Path(path).open("rb") as file:
            file.seek(offset)
            data = file.read(most_bytes)
            if b"\n" not in data:
                data += file.readline()
    except FileNotFoundError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    return [_decode(line) for line in whole.split(b"\n")[:-1]], offset + len(whole)


def _end_of_last_line(descriptor: int) -> int:
    """The number of bytes up to and with the last newline."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _TAIL_BYTES)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


@final
class JsonLines:
    """Appends records to a file, each batch in one write and handed to the system at once.

    Opening it removes a torn last line, so only the process that holds the run's lock may do that.
    A failed write, as on a full disk, raises OSError and takes its partial bytes away again.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._offset = _end_of_last_line(self._descriptor)
        os.ftruncate(self._descriptor, self._offset)

    @property
    def offset(self) -> int:
        """Bytes up to the end of the last whole line: what a checkpoint notes for a resume."""
        return self._offset

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Add a batch of records: all of them, or none if the write fails."""
        self._require_open()
        data = memoryview(b"".join(_encode(record) for record in records))
        written = 0
        try:
            # A torn line that could not be removed when it was written must go before the next.
            if os.fstat(self._descriptor).st_size > self._offset:
                os.ftruncate(self._descriptor, self._offset)
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._offset)
            raise
        self._offset += written

    def truncate(self, offset: int) -> None:
        """Forget what was written after ``offset``: the run goes on from a checkpoint there."""
        self._require_open()
        if not 0 <= offset <= self._offset:
            raise RunFolderError(
                f"{self.path} holds {self._offset} bytes, but the checkpoint was saved when it "
                f"held {offset}: the file was shortened or replaced since. "
                "Restore it from a copy, or start a new run."
            )
        if offset > 0 and os.pread(self._descriptor, 1, offset - 1) != b"\n":
            raise RunFolderError(
                f"{self.path} has no end of line at byte {offset}, where the checkpoint expects "
                "one: the file was edited or replaced since. "
                "Restore it from a copy, or start a new run."
            )
        os.ftruncate(self._descriptor, offset)
        self._offset = offset

    def sync(self) -> None:
        """Wait until the disk has it all: before a checkpoint that notes the offset is saved."""
        self._require_open()
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Release the file. Nothing is lost without this: every batch is already written."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _require_open(self) -> None:
        if self._descriptor < 0:
            raise ValueError(f"{self.path} was closed; open it again to go on.")

    def __enter__(self) -> "JsonLines":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
