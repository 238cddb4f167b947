"""Draw docs/images/learning.png: return over steps on four environments, ten seeds of each.

Presets as they are, all seeds of an environment in one compiled program. A thin line is a seed's
mean return of the episodes that ended while training (with sampled actions, so a little below an
evaluation's), smoothed over its last five updates; the thick one is the median over seeds.

    python bench/learning_curves.py            about a minute
"""

import argparse

import harness
import sessions

ENVIRONMENTS = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "FrozenLake-v1")
SEEDS = 10
SMOOTHED_OVER = 5
PICTURE = harness.REPOSITORY / "docs" / "images" / "learning.png"
INK, SEED_INK, MARK = "#1f2933", "#9fb3c8", "#c0562f"


def curves(env_id: str, seeds: int):
    """(steps [U], mean return [U, seeds], the mark for solved)."""
    import numpy as np

    configuration = sessions.configured(env_id, {})
    session = sessions.opened(configuration)
    updates = session.schedule.updates
    advance, runs = sessions.many_seeds(configuration, seeds, updates, devices=1)
    _, metrics = advance(runs)
    returns = np.array(metrics["rollout/return_mean"], np.float64)
    episodes = np.array(metrics["rollout/episodes"], np.float64)
    return (
        session.schedule.batch * np.arange(1, updates + 1),
        smoothed(np.nan_to_num(returns), episodes),
        session.env.spec.solved_at,
    )


def smoothed(returns, episodes):
    """Means over the last updates' episodes; NaN where none ended in all of them."""
    import numpy as np

    sums, counts = np.cumsum(returns * episodes, axis=0), np.cumsum(episodes, axis=0)
    sums[SMOOTHED_OVER:] -= sums[:-SMOOTHED_OVER].copy()
    counts[SMOOTHED_OVER:] -= counts[:-SMOOTHED_OVER].copy()
    with np.errstate(invalid="ignore"):
        return np.where(counts > 0, sums / np.where(counts > 0, counts, 1), np.nan)


def draw(seeds: int) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    import numpy as np

    figure, panels = plt.subplots(1, len(ENVIRONMENTS), figsize=(13, 3.1), layout="constrained")
    for axes, env_id in zip(panels, ENVIRONMENTS, strict=True):
        steps, returns, solved_at = curves(env_id, seeds)
        axes.plot(steps / 1e3, returns, color=SEED_INK, linewidth=0.8)
        some = np.isfinite(returns).any(axis=1)  # in the first updates no episode may have ended
        axes.plot(steps[some] / 1e3, np.nanmedian(returns[some], axis=1), color=INK, linewidth=2)
        if solved_at is not None:
            axes.axhline(solved_at, color=MARK, linewidth=1, linestyle="--")
            axes.annotate(
                f"dashed: solved at {solved_at:g}",
                (0.98, 0.06),
                xycoords="axes fraction",
                ha="right",
                color=MARK,
                fontsize=9,
            )
        axes.set_title(env_id, fontsize=11)
        axes.set_xlabel("environment steps (thousands)", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.margins(y=0.12)
    panels[0].set_ylabel("return while training", fontsize=9)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=120)
    print(f"drew {PICTURE.relative_to(harness.REPOSITORY)}, {seeds} seeds of each environment")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of each environment (10)")
    draw(parser.parse_args().seeds)
