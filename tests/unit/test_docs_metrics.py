"""docs/metrics.md names every metric that is written."""

import re
from pathlib import Path

import trimtab

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def documented() -> set[str]:
    return set(re.findall(r"^\| `([\w/]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_metric_of_a_run_is_in_the_table(tmp_path: Path) -> None:
    run = trimtab.train(
        "CartPole-v1",
        trimtab.PPO(minibatches=2),
        run_dir=tmp_path / "run",
        num_envs=4,
        num_steps=16,
        total_steps=64,
        eval_episodes=3,
    )
    assert set(run.metrics[0]) <= documented()
    evaluation = PAGE.read_text(encoding="utf-8").partition("## Evaluations")[2]
    assert set(run.evaluations[0]) <= set(re.findall(r"`(\w+)`", evaluation))
