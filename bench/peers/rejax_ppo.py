"""A worker for ../fused_ppo.py: rejax's PPO on CartPole-v1, in the environment of `make peers`.

No evaluation is timed: rejax's evaluation callback is replaced by one that does nothing. Training
goes on from the state of the call before, so that each repetition does the same kind of work.

    python rejax_ppo.py 64x128 400000 7      (lanes × steps, steps in a repetition, repetitions)
"""

import json
import statistics
import sys
import time

import jax
from rejax import PPO


def main(shape: str, steps: str, repetitions: str) -> None:
    num_envs, num_steps = (int(part) for part in shape.split("x"))
    batch = num_envs * num_steps
    total = max(1, int(steps) // batch) * batch
    algorithm = PPO.create(
        env="CartPole-v1",
        num_envs=num_envs,
        num_steps=num_steps,
        num_epochs=4,
        num_minibatches=4,
        learning_rate=2.5e-3,
        max_grad_norm=0.5,
        gamma=0.99,
        gae_lambda=0.95,
        clip_eps=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (64, 64)},
        total_timesteps=total,
        eval_freq=total,
        skip_initial_evaluation=True,
    )
    algorithm = algorithm.replace(eval_callback=lambda *_: ())
    train = jax.jit(lambda algorithm, state: algorithm.train(train_state=state)[0])
    state = algorithm.init_state(jax.random.PRNGKey(0))
    begun = time.perf_counter()
    state = jax.block_until_ready(train(algorithm, state))
    first_call = time.perf_counter() - begun
    print("ready", flush=True)
    sys.stdin.readline()
    rates = []
    for _ in range(int(repetitions)):
        begun = time.perf_counter()
        state = jax.block_until_ready(train(algorithm, state))
        rates.append(total / (time.perf_counter() - begun))
    print(json.dumps({"rate": statistics.median(rates), "rates": rates, "first_call": first_call}))


if __name__ == "__main__":
    main(*sys.argv[1:])
