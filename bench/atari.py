"""A short run of PPO on a game of Atari, and how the return rose.

The game is Gymnasium's ``ALE/…`` with the usual preprocessing (see docs/environments.md), seen by
the convolutions of Mnih et al. 2015; the settings are those of Schulman et al. 2017, as later
implementations have them. Returns of training are of one life with rewards of −1, 0 and 1;
evaluations count the score of whole games. A good policy takes ten million steps, which on a
CPU are days: the default shows that it runs, and how fast.
Needs the extra ``atari``.

    python bench/atari.py                                       Pong, 2,048 steps
    python bench/atari.py --game Breakout --steps 10000000
"""

import curves
import harness

SETTINGS = {
    "num_envs": 8,
    "num_steps": 128,
    "learning_rate": 2.5e-4,
    "learning_rate_schedule": "linear",
    "clip_range": 0.1,
    "clip_range_schedule": "linear",
    "entropy_coefficient": 0.01,
    "epochs": 4,
    "minibatches": 4,
    "trunk": "shared",
    "hidden_sizes": (512,),
    "activation": "relu",
    "normalize_rewards": False,
    "reward_clip": None,
    "eval_stochastic": True,  # a deterministic policy may wait for ever for a ball to appear
    "eval_count": 1,
    "eval_episodes": 2,
}


def main() -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--game", default="Pong", help="a name of ALE/NAME-v5")
    parser.add_argument("--steps", type=int, default=2048, help="environment steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(harness.machine_words())
    steps = 1024 if options.quick else options.steps
    with harness.temporary_folder() as folder:
        figures = curves.report(
            f"gymnasium:ALE/{options.game}-v5",
            steps,
            folder,
            seed=options.seed,
            **SETTINGS,
        )
    harness.write_figures(options.json, figures)


if __name__ == "__main__":
    main()
