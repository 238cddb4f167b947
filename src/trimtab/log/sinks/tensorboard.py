"""TensorBoard: event files in the run's folder, without TensorFlow or torch."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from tensorboardX import SummaryWriter
from tensorboardX.proto import summary_pb2

from trimtab.log.sinks import Point, RunRecord

Summary: Any = summary_pb2.Summary  # pyright: ignore[reportAttributeAccessIssue]


@final
class TensorBoard:
    """``tensorboard --logdir runs`` shows each run under its folder's name."""

    rewinds = True

    def open(self, record: RunRecord, memory: dict[str, Any], steps: int) -> None:
        again = len(list(record.folder.glob("events.out.tfevents.*")))
        self._writer: Any = SummaryWriter(
            str(record.folder),
            # Readers forget what earlier files hold from here on: nothing is doubled.
            purge_step=steps + 1 if again else None,
            # A file is called after the second, and would replace another one of that second.
            filename_suffix=f".{again:04d}",
        )
        if again:
            return
        about = {**record.settings, "tags": record.tags} if record.tags else record.settings
        text = json.dumps(about, indent=2, default=str)
        self._writer.add_text("settings", "    " + text.replace("\n", "\n    "))

    def write(self, points: Sequence[Point]) -> None:
        for steps, values in points:
            # One event for all: add_scalar would write one for each.
            scalars = [Summary.Value(tag=name, simple_value=x) for name, x in values.items()]
            self._writer.file_writer.add_summary(Summary(value=scalars), steps)
        self._writer.flush()

    def attach(self, name: str, path: Path) -> None:
        """An image is shown; TensorBoard keeps no other files."""
        if path.suffix == ".png":
            image = Summary.Image(encoded_image_string=path.read_bytes(), colorspace=3)
            self._writer.file_writer.add_summary(
                Summary(value=[Summary.Value(tag=name, image=image)])
            )

    def refuses(self, error: Exception) -> bool:
        return isinstance(error, (TypeError, ValueError))

    def close(self) -> None:
        self._writer.close()
