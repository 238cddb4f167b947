"""A worker for ../host_ppo.py and ../fused_ppo.py: PPO of Stable-Baselines3, or of sbx, on 8 lanes.

Lanes are stepped in process. torch has one thread, which is its fastest for networks of this size.

    python sb3_ppo.py sb3 '{"env": "CartPole-v1", …}' 20000 3
        (library, settings as in host_ppo.Task, steps in a repetition, repetitions)
"""

import importlib
import json
import statistics
import sys
import time

import torch
from stable_baselines3.common.env_util import make_vec_env

LIBRARIES = {"sb3": "stable_baselines3", "sbx": "sbx"}
LANES = 8


def main(library: str, given: str, steps: str, repetitions: str) -> None:
    torch.set_num_threads(1)
    task = json.loads(given)
    rate, clip = task["learning_rate"], 0.2
    model = importlib.import_module(LIBRARIES[library]).PPO(
        "MlpPolicy",
        make_vec_env(task["env"], n_envs=LANES, seed=0),
        n_steps=task["num_steps"],
        batch_size=task["minibatch"],
        n_epochs=task["epochs"],
        gamma=task["gamma"],
        gae_lambda=task["gae_lambda"],
        ent_coef=0.0,
        vf_coef=0.5,
        max_grad_norm=0.5,
        learning_rate=(lambda left: left * rate) if task["falling"] else rate,
        clip_range=(lambda left: left * clip) if task["falling"] else clip,
        device="cpu" if library == "sb3" else "auto",
        seed=0,
    )
    model.learn(2 * LANES * task["num_steps"])
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
