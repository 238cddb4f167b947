"""Makes the files beside it, in an environment with Stable-Baselines3 (`make peers`):

    .venv-peers/bin/python tests/unit/export/sb3/make.py

Policies are hardly trained, and as small as can be. Each comes with what Stable-Baselines3 itself
does at a few observations.
"""

from pathlib import Path

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

HERE = Path(__file__).parent
SHORT = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "seed": 0, "device": "cpu"}


def answers(model, seen, shown):
    """What the policy does where the environment shows ``shown``, and it is given ``seen``."""
    actions, _ = model.predict(seen, deterministic=True)
    values = model.policy.predict_values(torch.as_tensor(seen)).detach().numpy()[:, 0]
    return {"obs": shown, "actions": actions, "values": values}


def main():
    generator = np.random.default_rng(0)
    model = PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8, 4]}, **SHORT)
    model.learn(128)
    model.save(HERE / "cartpole.zip")
    obs = generator.uniform(-2, 2, (16, 4)).astype(np.float32)
    np.savez(HERE / "cartpole.npz", **answers(model, obs, obs))

    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    kwargs = {"net_arch": [8], "activation_fn": torch.nn.ReLU}
    model = PPO("MlpPolicy", env, policy_kwargs=kwargs, learning_rate=0.01, **SHORT)
    model.learn(128)
    model.save(HERE / "pendulum.zip")
    env.save(str(HERE / "pendulum.pkl"))
    obs = generator.uniform(-1, 1, (16, 3)).astype(np.float32) * np.float32([1, 1, 8])
    np.savez(HERE / "pendulum.npz", **answers(model, env.normalize_obs(obs), obs))


if __name__ == "__main__":
    main()
