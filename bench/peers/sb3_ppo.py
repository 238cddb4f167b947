"""A worker for ../fused_ppo.py: Stable-Baselines3's PPO on CartPole-v1 with the Zoo's settings.

8 lanes × 32 steps, one minibatch of 256, 20 epochs; torch with one thread, which is its fastest
for networks of this size.

    python sb3_ppo.py 20000 3      (steps in a repetition, repetitions)
"""

import json
import statistics
import sys
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env


def main(steps: str, repetitions: str) -> None:
    torch.set_num_threads(1)
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=0),
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda left: left * 1e-3,
        clip_range=lambda left: left * 0.2,
        device="cpu",
        seed=0,
    )
    model.learn(2048)
    print("ready", flush=True)
    sys.stdin.readline()
    rates = []
    for _ in range(int(repetitions)):
        begun = time.perf_counter()
        before = model.num_timesteps
        model.learn(int(steps), reset_num_timesteps=False)
        rates.append((model.num_timesteps - before) / (time.perf_counter() - begun))
    print(json.dumps({"rate": statistics.median(rates), "rates": rates}))


if __name__ == "__main__":
    main(*sys.argv[1:])
