"""What the measurements share: their options, workers in processes of their own, and tables.

A measurement is a process of its own wherever devices or threads matter, because JAX fixes both
when it starts. A worker writes one JSON object as the last line of its output.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

REPOSITORY = Path(__file__).resolve().parent.parent
PEER_WORKERS = Path(__file__).resolve().parent / "peers"
SOURCES = REPOSITORY / "src"
sys.path.insert(0, str(SOURCES))  # these sources are measured, whatever is installed


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that every measurement has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short and rough: does it work?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    return parser


def stop(sentence: str, code: int = 2) -> NoReturn:
    """Leave with a sentence."""
    print(sentence, file=sys.stderr)
    sys.exit(code)


# Workers


def environment_for_workers(**changes: str | None) -> dict[str, str]:
    """This process's environment with the sources on the path; None removes a variable."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(SOURCES), *filter(None, [environment.get("PYTHONPATH")])]
    )
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


def peers_python(which: str = "") -> Path:
    """The Python that has the peers: .venv-peers, or the environment that TRIMTAB_PEERS names.

    Of ``sbx``, which needs other versions: .venv-peers-sbx, or what TRIMTAB_PEERS_SBX names.
    """
    named = os.environ.get("_".join(filter(None, ["TRIMTAB_PEERS", which.upper()])))
    home = Path(named) if named else REPOSITORY / "-".join(filter(None, [".venv-peers", which]))
    python = home / "bin" / "python" if home.is_dir() else home
    if not python.is_file():
        stop(f"There are no peers to compare with at {home}: run `make peers`.")
    return python


class Worker:
    """A measuring process that says ``ready``, waits to be told ``go``, and answers with JSON."""

    def __init__(self, command: Sequence[Any], environment: Mapping[str, str]):
        self._command = [str(part) for part in command]
        self._process = subprocess.Popen(
            self._command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        """Until it has compiled and warmed up."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "ready":
                return
        self._fail()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        output, errors = self._process.communicate()
        if self._process.returncode:
            self._fail(errors)
        return last_json(output)

    def _fail(self, errors: str | None = None) -> NoReturn:
        if errors is None:
            errors = self._process.communicate()[1]
        stop(f"A worker failed: {' '.join(self._command)}\n{errors[-3000:]}", code=1)


def measured(command: Sequence[Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The answer of one worker that nothing else runs beside."""
    return measured_together([command], environment)[0]


def measured_together(
    commands: Sequence[Sequence[Any]], environment: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The answers of workers that measure at the same time, once all are ready."""
    workers = [Worker(command, environment) for command in commands]
    for worker in workers:
        worker.wait_until_ready()
    for worker in workers:
        worker.go()
    return [worker.result() for worker in workers]


def last_json(output: str) -> dict[str, Any]:
    """The JSON object on the last line that is not empty."""
    return json.loads(output.strip().splitlines()[-1])


def wait_for_go() -> None:
    """In a worker: say that it is ready, and wait to be told."""
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        sys.exit("told neither to go nor to stay")


def answer(**figures: Any) -> None:
    """In a worker: the figures, as the last line."""
    print(json.dumps(figures), flush=True)


def rates(repeat: Callable[[], Any], items: float, repetitions: int) -> list[float]:
    """Items per second in each of several calls of ``repeat``, which returns when it is done."""
    found = []
    for _ in range(repetitions):
        begun = time.perf_counter()
        repeat()
        found.append(items / (time.perf_counter() - begun))
    return found


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
        yield Path(folder)


# Reports


def median_and_range(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)


def ratio_words(values: Sequence[float], form: str = "{:.2f}") -> str:
    """2.31 (2.28–2.35): the median and the range over rounds."""
    middle, low, high = (form.format(value) for value in median_and_range(values))
    return middle if len(values) == 1 else f"{middle} ({low}–{high})"


def percent_words(values: Sequence[float]) -> str:
    return ratio_words([100 * value for value in values], "{:.0f}%")


def rate_words(value: float) -> str:
    return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.0f}k"


def verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table, which reads well in a terminal too."""
    cells = [[str(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]

    def line(row: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    rule = f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return {
        "processor": name,
        "cores": available_cores(),
        "system": platform.system(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def available_cores() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_words() -> str:
    found = machine()
    words = f"{found['processor']}, {found['cores']} cores, Python {found['python']}"
    load = found["load"]
    if load is not None and load > 0.5:
        words += f"; the load average at the start was {load:.1f}, so expect noise"
    return words


def write_figures(file: Path | None, figures: Mapping[str, Any]) -> None:
    """The figures and the machine, as JSON, where a file was named."""
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"machine": machine(), **figures}, indent=1) + "\n")
    print(f"Figures: {file}")
