"""A short run of PPO on Gymnasium's HalfCheetah-v5, and how the return rose.

The settings are those of Schulman et al. 2017 for MuJoCo, on 8 lanes, with the normalisation of
observations and rewards that later implementations agree on (Engstrom et al. 2020).

One seed shows that it learns, not how well: runs of this environment differ by half between seeds.
Needs the extra ``mujoco``.

    python bench/halfcheetah.py                  300,000 steps
    python bench/halfcheetah.py --steps 1000000
"""

import curves
import harness

SETTINGS = {
    "num_envs": 8,
    "num_steps": 256,
    "learning_rate": 3e-4,
    "learning_rate_schedule": "linear",
    "epochs": 10,
    "minibatches": 32,
    "normalize_observations": True,
    "normalize_rewards": True,
    "reward_clip": None,
    "eval_episodes": 8,
}


def main() -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--steps", type=int, default=300_000, help="environment steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(harness.machine_words())
    steps = 8192 if options.quick else options.steps
    with harness.temporary_folder() as folder:
        figures = curves.report(
            "gymnasium:HalfCheetah-v5", steps, folder, seed=options.seed, **SETTINGS
        )
    harness.write_figures(options.json, figures)


if __name__ == "__main__":
    main()
