"""Draw docs/images/update.svg: what one update does, and in which file."""

import itertools
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

INK, LINE, TINT = "#1f2933", "#52606d", "#e8eef4"
BOXES = [
    (0.2, "environment", "reset, step\nfor one lane", "envs/"),
    (2.5, "lanes", "step all, reset\nwhere one ended", "collect/episodes.py"),
    (4.8, "rollout", "T steps × N lanes\none lax.scan", "collect/fused.py"),
    (7.1, "samples", "advantages and\ntargets (GAE)", "algos/ppo.py: prepare"),
    (9.4, "minibatches", "shuffled; each used\nonce an epoch", "algos/sgd.py"),
    (11.7, "gradient", "mean of the loss\nof each sample", "algos/ppo.py: terms"),
]
WIDTH, HEIGHT, BASE = 1.8, 1.15, 1.2


def main() -> None:
    plt.rcParams["svg.fonttype"] = "none"
    plt.rcParams["svg.hashsalt"] = "trimtab"
    figure, axes = plt.subplots(figsize=(11.5, 3.1))
    axes.set(xlim=(0, 13.7), ylim=(-0.15, 3.35))
    axes.axis("off")
    for left, name, words, place in BOXES:
        axes.add_patch(
            FancyBboxPatch(
                (left, BASE),
                WIDTH,
                HEIGHT,
                boxstyle="round,pad=0,rounding_size=0.12",
                facecolor=TINT,
                edgecolor=LINE,
                linewidth=1,
            )
        )
        middle = left + WIDTH / 2
        axes.text(middle, BASE + 0.88, name, ha="center", va="center", weight="bold", color=INK)
        axes.text(middle, BASE + 0.4, words, ha="center", va="center", size=8.5, color=INK)
        axes.text(
            middle,
            BASE - 0.2,
            place,
            ha="center",
            va="center",
            size=7.5,
            color=LINE,
            family="monospace",
        )
    for (left, *_), (right, *_) in itertools.pairwise(BOXES):
        arrow(axes, (left + WIDTH, BASE + 0.57), (right, BASE + 0.57))
    arrow(axes, (12.6, BASE + HEIGHT), (3.4, BASE + HEIGHT), curve=0.13)
    axes.text(
        8.0,
        3.18,
        "new parameters: the policy acts with them in the next update",
        ha="center",
        size=9,
        color=INK,
    )
    axes.text(
        6.85,
        0.3,
        "training/step.py: one_update, and many of them in one compiled call",
        ha="center",
        size=9,
        color=INK,
        family="monospace",
    )
    axes.plot([2.5, 13.5], [0.6, 0.6], color=LINE, linewidth=1)
    target = Path(__file__).parent.parent / "docs" / "images" / "update.svg"
    figure.savefig(target, bbox_inches="tight", facecolor="white", metadata={"Date": None})
    print(f"wrote {target.name}")


def arrow(axes: plt.Axes, start: tuple, end: tuple, curve: float = 0.0) -> None:
    axes.annotate(
        "",
        end,
        start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": LINE,
            "linewidth": 1.2,
            "shrinkA": 1,
            "shrinkB": 1,
            "connectionstyle": f"arc3,rad={curve}",
        },
    )


if __name__ == "__main__":
    main()
