"""JSON lines: what is written is read back, and a kill or a full disk tears at most one line."""

import errno
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import RunFolderError
from trimtab.log.writer import JsonLines, from_json, read_jsonl, read_last, to_json


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_append_and_read_back(path: Path):
    with JsonLines(path) as lines:
        lines.append([{"update": 1, "text": "a\nb é"}])
        lines.append([{"update": 2}, {"update": 3}])
        assert path.stat().st_size == lines.offset  # on the file before it is closed
    assert read_jsonl(path) == [{"update": 1, "text": "a\nb é"}, {"update": 2}, {"update": 3}]
    assert path.read_bytes().count(b"\n") == 3


def test_opening_again_appends(path: Path):
    with JsonLines(path) as lines:
        lines.append([{"a": 1}])
    with JsonLines(path) as lines:
        assert lines.offset == path.stat().st_size
        lines.append([{"a": 2}])
    assert read_jsonl(path) == [{"a": 1}, {"a": 2}]


def test_numbers_that_json_lacks(path: Path):
    with JsonLines(path) as lines:
        lines.append([{"x": math.nan, "y": [math.inf, -math.inf], "z": {"w": np.float32("nan")}}])

    def refuse(constant: str) -> Any:
        raise AssertionError(f"not standard JSON: {constant}")

    json.loads(path.read_text(), parse_constant=refuse)
    (record,) = read_jsonl(path)
    assert math.isnan(record["x"])
    assert record["y"] == [math.inf, -math.inf]
    assert math.isnan(record["z"]["w"])


def test_numpy_and_jax_values(path: Path):
    with JsonLines(path) as lines:
        record = {
            "float32": np.float32(0.1),
            "int64": np.int64(2**62),
            "bool": np.bool_(True),
            "jax": jnp.float32(0.1),
            "bfloat16": jnp.asarray(1.5, jnp.bfloat16),
            "array": jnp.arange(3),
            "path": Path("a") / "b",
            "tuple": (1, None),
        }
        lines.append([record])
    (record,) = read_jsonl(path)
    assert np.float32(record["float32"]) == np.float32(0.1)
    assert record["int64"] == 2**62
    assert record["bool"] is True
    assert record["jax"] == record["float32"]
    assert record["bfloat16"] == 1.5
    assert record["array"] == [0, 1, 2]
    assert record["path"] == os.path.join("a", "b")
    assert record["tuple"] == [1, None]


@given(st.floats())
def test_every_float_survives(value: float):
    again = from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))
    assert repr(again) == repr(value) or math.isnan(value)


def test_an_unwritable_value_is_named_and_writes_nothing(path: Path):
    with JsonLines(path) as lines:
        with pytest.raises(TypeError, match="of type object cannot be written as JSON"):
            lines.append([{"a": 1}, {"a": object()}])
        assert lines.offset == path.stat().st_size == 0


def test_a_record_without_its_list_is_refused(path: Path):
    record: Any = {"update": 1}
    with JsonLines(path) as lines, pytest.raises(TypeError, match="'update' is not a record"):
        lines.append(record)
    assert read_jsonl(path) == []


def test_text_that_is_not_unicode_is_escaped(path: Path):
    with JsonLines(path) as lines:
        lines.append([{"name": "a\udc80"}])
    assert read_jsonl(path) == [{"name": "a\udc80"}]


@pytest.mark.parametrize("torn", [b'{"a":', b'{"a": 2}', b"\x00\x00\x00", b"\xff", b"x" * 200_000])
def test_a_torn_last_line_is_ignored_and_then_removed(path: Path, torn: bytes):
    path.write_bytes(b'{"a":1}\n' + torn)
    assert read_jsonl(path) == [{"a": 1}]
    with JsonLines(path) as lines:
        assert lines.offset == 8
        lines.append([{"a": 3}])
    assert read_jsonl(path) == [{"a": 1}, {"a": 3}]


def test_a_file_that_is_one_torn_line(path: Path):
    path.write_bytes(b'{"a":')
    assert read_jsonl(path) == []
    with JsonLines(path) as lines:
        assert lines.offset == 0


@pytest.mark.parametrize("damage", [b"{oops}", b"[1]", b"\xff\xfe", b"", b"[" * 100_000])
def test_damage_in_the_middle_is_named(path: Path, damage: bytes):
    path.write_bytes(b'{"a":1}\n' + damage + b'\n{"a":2}\n')
    with pytest.raises(RunFolderError, match=re.escape(f"{path}: line 2 is damaged")):
        read_jsonl(path)
    assert read_last(path, tail_bytes=1_000_000) == [{"a": 1}, {"a": 2}]


def test_read_last_reads_only_the_end(path: Path):
    with JsonLines(path) as lines:
        lines.append({"update": update} for update in range(1000))
    assert [record["update"] for record in read_last(path, tail_bytes=40)] == [998, 999]
    assert len(read_last(path)) == 1000


def test_truncate_for_a_resume(path: Path):
    with JsonLines(path) as lines:
        lines.append([{"a": 1}])
        offset = lines.offset
        lines.append([{"a": 2}])
        lines.truncate(offset)
        assert lines.offset == offset
        lines.append([{"a": 3}])
        lines.sync()
    assert read_jsonl(path) == [{"a": 1}, {"a": 3}]


@pytest.mark.parametrize(
    ("offset", "words"), [(99, "holds 8 bytes"), (-1, "holds 8"), (3, "byte 3")]
)
def test_truncate_where_no_line_ends_is_refused(path: Path, offset: int, words: str):
    with JsonLines(path) as lines:
        lines.append([{"a": 1}])
        with pytest.raises(RunFolderError, match=words):
            lines.truncate(offset)
        assert lines.offset == path.stat().st_size == 8


def test_a_full_disk_raises_and_leaves_no_torn_line(path: Path, monkeypatch: pytest.MonkeyPatch):
    real_write = os.write
    calls = []

    def write_some_then_fail(descriptor: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, data[:5])

    with JsonLines(path) as lines:
        lines.append([{"a": 1}])
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write_some_then_fail)
            with pytest.raises(OSError, match="No space left"):
                lines.append([{"a": 2}])
        assert path.read_bytes() == b'{"a":1}\n'
        lines.append([{"a": 3}])  # there is room again
    assert read_jsonl(path) == [{"a": 1}, {"a": 3}]


def test_a_torn_line_that_could_not_be_removed_goes_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    real_write = os.write

    def tear(descriptor: int, data: memoryview) -> int:
        real_write(descriptor, data[:5])
        raise OSError(errno.EIO, "Input/output error")

    def refuse(descriptor: int, length: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with JsonLines(path) as lines:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", tear)
            patch.setattr(os, "ftruncate", refuse)
            with pytest.raises(OSError, match="Input/output"):
                lines.append([{"a": 1}])
        assert read_jsonl(path) == []
        lines.append([{"a": 2}])
    assert read_jsonl(path) == [{"a": 2}]


def test_a_short_write_is_continued(path: Path, monkeypatch: pytest.MonkeyPatch):
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:3]))
    with JsonLines(path) as lines:
        lines.append([{"a": 1}, {"b": 2}])
    assert read_jsonl(path) == [{"a": 1}, {"b": 2}]


def test_use_after_close_is_a_sentence(path: Path):
    lines = JsonLines(path)
    lines.close()
    lines.close()
    for use in (lambda: lines.append([{}]), lambda: lines.truncate(0), lines.sync):
        with pytest.raises(ValueError, match="was closed"):
            use()
