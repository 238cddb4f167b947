"""The founding experiments of the gradient lab, and the figures of docs/lab.md.

Each is a training run whose checkpoints are kept along the way, and one ``trimtab lab`` command on
them; this script only types those commands, and draws what they wrote.

    python bench/lab_founding.py                 all of them, about a quarter of an hour
    python bench/lab_founding.py lake pendulum   some of them
    python bench/lab_founding.py --train         only the runs that are measured
    python bench/lab_founding.py --draw          draw again what was measured before
"""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness

OUT = harness.REPOSITORY / "bench" / "out" / "lab"
IMAGES = harness.REPOSITORY / "docs" / "images"
LAKE = ("FrozenLake8x8-v1", "--num-envs", "64", "--num-steps", "64", "--gamma", "0.99")
LAKE += ("--learning-rate", "0.002", "--entropy-coefficient", "0.01")
# What dynamic programming follows: rewards as they are. PPO's preset has that already.
PLAIN = ("--no-normalize-rewards", "--reward-clip", "none", "--advantage-normalization", "batch")
LAKE_UPDATES = (24, 36, 48, 60, 72, 96, 120, 180, 240)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A run, when its checkpoints are kept, and what the lab is asked of them."""

    train: tuple[str, ...]
    batch: int
    length: int  # of the run, in updates
    updates: tuple[int, ...]  # of which checkpoints are measured
    every: int  # updates between those that are kept
    lab: tuple[str, ...]
    of: str = ""  # the experiment whose run is measured, if it is not one of its own


EXPERIMENTS = {
    "lake": Experiment(
        LAKE,
        4096,
        240,
        LAKE_UPDATES,
        12,
        ("--splits", "4x32,32x4", "--heads", "actor,critic,entropy"),
    ),
    "pendulum": Experiment(
        ("Pendulum-v1",),
        2048,
        200,
        (20, 60, 100, 200),
        20,
        ("--splits", "4x256,16x64"),
    ),
    "lambdas": Experiment(
        LAKE,
        4096,
        240,
        (36,),
        12,
        ("--splits", "32x4,8x16,2x64", "--lambdas", "0,0.5,0.95,1"),
        of="lake",
    ),
    "a2c": Experiment(
        (*LAKE, "--algo", "a2c", *PLAIN),
        4096,
        960,
        (120, 240, 360, 480),
        120,
        ("--splits", "4x32,32x4"),
    ),
    "reinforce": Experiment(
        (*LAKE, "--algo", "reinforce", *PLAIN),
        4096,
        480,
        (120, 240, 360, 480),
        120,
        ("--splits", "4x32,32x4"),
    ),
}


def trimtab(*arguments: str) -> None:
    command = [sys.executable, "-m", "trimtab", *arguments]
    print("$ trimtab", *arguments, flush=True)
    done = subprocess.run(command, env=harness.environment_for_workers(), check=False)
    if done.returncode:
        harness.stop(f"trimtab {arguments[0]} failed", done.returncode)


def run_of(name: str) -> Path:
    """The run's folder, which keeps a series of checkpoints."""
    experiment = EXPERIMENTS[name]
    folder = OUT / (experiment.of or name)
    last = experiment.length
    if not (folder / "checkpoints" / f"update-{last}").exists():
        shutil.rmtree(folder, ignore_errors=True)
        trimtab(
            "train",
            *experiment.train,
            *("--total-steps", str(last * experiment.batch)),
            *("--keep-every", str(experiment.every), "--run-dir", str(folder), "--quiet"),
        )
    return folder


def measure(name: str, quick: bool) -> None:
    experiment, folder = EXPERIMENTS[name], run_of(name)
    updates = experiment.updates[-2:] if quick else experiment.updates
    checkpoints = ",".join(f"update-{update}" for update in updates)
    batches = ("--batches", "20") if quick else ()
    out = OUT / (f"{name}-quick" if quick else f"{name}-lab")
    trimtab(
        *("lab", str(folder), *experiment.lab, "--checkpoints", checkpoints),
        *(*batches, "--out", str(out)),
    )


# Figures


def survey(name: str) -> dict[str, Any] | None:
    path = OUT / f"{name}-lab" / "lab.json"
    return json.loads(path.read_text()) if path.exists() else None


def figures(found: dict[str, Any], head: str, split: str, *path: str) -> list[tuple[int, Any]]:
    """(update, estimate) along training of one figure."""
    updates = {moment["name"]: moment["update"] for moment in found["moments"]}
    rows = []
    for cell in found["cells"]:
        record = cell["heads"].get(head)
        if f"{cell['lanes']}×{cell['steps']}" != split or not record or record["zero"]:
            continue
        value: Any = record
        for key in path:
            value = value[key]
        rows.append((updates[cell["checkpoint"]], value))
    return rows


def plot(axis: Any, rows: Sequence[tuple[float, Any]], label: str, **style: Any) -> None:
    """Estimates with their intervals; an end that is not known is left out."""
    x = [row[0] for row in rows]
    triples = [
        [one if isinstance(one, float | int) else float("nan") for one in row[1]] for row in rows
    ]
    y = [value for value, _, _ in triples]
    down = [max(value - low, 0) for value, low, _ in triples]
    up = [max(high - value, 0) if high == high else 0 for value, _, high in triples]
    axis.errorbar(x, y, yerr=[down, up], label=label, capsize=2, marker="o", ms=3, lw=1.3, **style)


def draw() -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {"font.size": 9, "svg.hashsalt": "trimtab", "axes.grid": True, "grid.alpha": 0.3}
    )
    for drawing in (draw_training, draw_cosines, draw_lags, draw_lambdas, draw_algorithms):
        found = drawing(plt)
        if found is not None:
            name, figure = found
            figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
            print(f"drawn: docs/images/{name}.svg")


def draw_training(plt: Any) -> tuple[str, Any] | None:
    """Effective samples, direction and bias along training on the lake."""
    found = survey("lake")
    if found is None:
        return None
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.2))
    panels = (
        ("actor: effective samples of 128", "actor", ("figures", "effective_samples")),
        ("critic: effective samples of 128", "critic", ("figures", "effective_samples")),
        ("entropy: effective samples of 128", "entropy", ("figures", "effective_samples")),
        ("actor: cosine with the true gradient", "actor", ("bias", "cosine")),
        (
            "actor: cosine with the lane, above chance",
            "actor",
            ("directions", "lane", "difference"),
        ),
    )
    for axis, (title, head, path) in zip(axes.flat, panels, strict=False):
        for split in found["settings"]["splits"]:
            plot(axis, figures(found, head, split, *path), split)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("update")
    last = axes.flat[-1]
    for split in found["settings"]["splits"]:
        rows = figures(found, "actor", split, "bias", "sources", "total")
        last.plot([row[0] for row in rows], [row[1] for row in rows], marker="o", ms=3, label=split)
    last.set_title("actor: exact |bias| / |gradient|", fontsize=9)
    last.set_xlabel("update")
    axes.flat[0].legend()
    figure.tight_layout()
    return "lab-lake", figure


def draw_cosines(plt: Any) -> tuple[str, Any] | None:
    """Steps against their lanes, and batches against batches, of the actor on the lake."""
    found = survey("lake")
    if found is None:
        return None
    wanted = f"update-{LAKE_UPDATES[1]}"
    cells = [cell for cell in found["cells"] if cell["checkpoint"] == wanted]
    figure, axes = plt.subplots(len(cells), 3, figsize=(10, 5), sharey="col", squeeze=False)
    for row, cell in zip(axes, cells, strict=True):
        split = f"{cell['lanes']}×{cell['steps']}"
        directions = cell["heads"]["actor"]["directions"]
        for key, label in (("histogram", "of the lane"), ("null_histogram", "dealt at random")):
            stairs(row[0], directions["lane"][key], label)
        row[0].set_title(f"{split}: a step, and the rest of its lane", fontsize=9)
        for place, (low, middle, high) in enumerate(directions["first_batch"]):
            row[1].plot([place, place], [low, high], color="C0", lw=1)
            row[1].plot([place], [middle], color="C0", marker="o", ms=3)
        row[1].set_title(f"{split}: batch 0's samples, and batch k", fontsize=9)
        row[1].set_xlabel("k")
        stairs(row[2], directions["pairs"]["histogram"], "pairs of batches")
        stairs(row[2], cell["heads"]["actor"]["bias"]["cosine_histogram"], "batch and truth")
        row[2].set_title(f"{split}: batches", fontsize=9)
        for axis in (row[0], row[2]):
            axis.set_xlabel("cosine")
            axis.legend(fontsize=7)
    figure.tight_layout()
    return "lab-lake-cosines", figure


def stairs(axis: Any, counts: Sequence[int], label: str) -> None:
    """A histogram of cosines as shares."""
    edges = [-1 + 2 * place / len(counts) for place in range(len(counts) + 1)]
    axis.stairs([count / max(sum(counts), 1) for count in counts], edges, label=label)


def draw_lags(plt: Any) -> tuple[str, Any] | None:
    """Correlation by lag on Pendulum, actor and critic."""
    found = survey("pendulum")
    if found is None:
        return None
    names = [moment["name"] for moment in found["moments"]]
    figure, axes = plt.subplots(
        2, len(names), figsize=(10, 5), sharex=True, sharey="row", squeeze=False
    )
    for column, name in enumerate(names):
        for row, head in enumerate(("actor", "critic")):
            axis = axes[row][column]
            for cell in found["cells"]:
                if cell["checkpoint"] == name:
                    lags = cell["heads"][head]["lags"][1:65]
                    plot(
                        axis,
                        list(enumerate(lags, 1)),
                        f"{cell['lanes']}×{cell['steps']}",
                        elinewidth=0.5,
                    )
            axis.set_title(f"{head}, {name}", fontsize=9)
            axis.set_xlabel("lag in steps")
    axes[0][0].set_ylabel("correlation")
    axes[1][0].set_ylabel("correlation")
    axes[0][0].legend()
    figure.tight_layout()
    return "lab-pendulum-lags", figure


def draw_lambdas(plt: Any) -> tuple[str, Any] | None:
    """Squared error over λ, the cosine that is left, and exact bias over T for each λ."""
    found = survey("lambdas")
    if found is None:
        return None
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2))
    for split in found["settings"]["splits"]:
        cells = [c for c in found["cells"] if f"{c['lanes']}×{c['steps']}" == split]
        traces = [cell["trace"] for cell in cells]
        bias = [cell["heads"]["actor"]["bias"] for cell in cells]
        for axis, name in ((axes[0], "relative_error"), (axes[1], "cosine")):
            plot(axis, list(zip(traces, (one[name] for one in bias), strict=True)), split)
    axes[0].set_yscale("log")
    axes[0].set_title("actor: squared error / |gradient|²", fontsize=9)
    axes[1].set_title("actor: cosine with the true gradient", fontsize=9)
    grid = found["moments"][0]["exact_grid"]
    for trace, row in zip(grid["traces"], grid["bias"], strict=True):
        axes[2].plot(grid["steps"], row, marker="o", ms=3, label=f"λ = {trace:g}")
    axes[2].set_title("actor: exact |bias| / |gradient|", fontsize=9)
    axes[2].set_xscale("log", base=2)
    axes[2].set_ylim(bottom=0)
    for axis, title in zip(axes, ("λ", "λ", "T"), strict=True):
        axis.set_xlabel(title)
    axes[0].legend()
    axes[2].legend(fontsize=7)
    figure.tight_layout()
    return "lab-lambdas", figure


def draw_algorithms(plt: Any) -> tuple[str, Any] | None:
    """PPO, A2C and REINFORCE on the lake."""
    surveys = {"PPO": survey("lake"), "A2C": survey("a2c"), "REINFORCE": survey("reinforce")}
    if not all(surveys.values()):
        return None
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.4))
    panels = (
        ("actor: effective samples of 128", ("figures", "effective_samples")),
        ("actor: cosine with the true gradient", ("bias", "cosine")),
        ("actor: noise scale", ("figures", "noise_scale")),
    )
    for position, (name, found) in enumerate(surveys.items()):
        assert found is not None
        returns = {moment["update"]: moment["expected_return"] for moment in found["moments"]}
        for split, dash in zip(found["settings"]["splits"], ("-", "--"), strict=True):
            for axis, (title, path) in zip(axes, panels, strict=True):
                rows = [(returns[u], v) for u, v in figures(found, "actor", split, *path)]
                plot(axis, rows, f"{name} {split}", color=f"C{position}", ls=dash)
                axis.set_title(title, fontsize=9)
                axis.set_xlabel("expected return of the policy")
    axes[2].set_yscale("log")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=6, fontsize=7)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    return "lab-algorithms", figure


def main() -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    parser.add_argument("--draw", action="store_true", help="draw what was measured, no more")
    parser.add_argument("--train", action="store_true", help="train only, and measure later")
    options = parser.parse_args()
    for name in options.names or EXPERIMENTS:
        if name not in EXPERIMENTS:
            harness.stop(f"There is no experiment {name!r}: {', '.join(EXPERIMENTS)}.")
        if options.train:
            run_of(name)
        elif not options.draw:
            measure(name, options.quick)
    if not (options.quick or options.train):
        draw()


if __name__ == "__main__":
    main()
