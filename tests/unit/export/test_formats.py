"""A policy as a file: what another program computes with it is what the policy does."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import trimtab
from trimtab.errors import ExportError, SettingError
from trimtab.export import weights
from trimtab.export.evaluate import evaluate
from trimtab.export.formats import export, file_for, graph_of, random_inputs
from trimtab.spaces import Box, Dict, Discrete, EnvSpec, MultiBinary, MultiDiscrete
from trimtab.training.stored import StoredPolicy

VECTOR = Box((3,))
IMAGE = Box.of(0, 255, (36, 36, 2), "uint8")
MIXED = Dict.of({"place": VECTOR, "kind": Discrete(4), "inner": Dict.of({"flags": MultiBinary(3)})})
MASKED = Dict.of({"place": VECTOR, "action_mask": MultiBinary(5)})
CONTINUOUS = Box.of([-2.0, 0.0], [2.0, 5.0], (2,))
HALF_BOUNDED = Box.of([0.0, -np.inf], [np.inf, np.inf], (2,))

CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "discrete": (VECTOR, Discrete(5), {"activation": "relu"}),
    "continuous": (VECTOR, CONTINUOUS, {"normalize_observations": True}),
    "half-bounded": (VECTOR, HALF_BOUNDED, {"activation": "elu"}),
    "squashed": (VECTOR, CONTINUOUS, {"action_distribution": "tanh", "activation": "silu"}),
    "state-dependent": (VECTOR, CONTINUOUS, {"state_dependent_std": True, "trunk": "shared"}),
    "image": (IMAGE, Discrete(3), {}),
    "dict": (MIXED, MultiDiscrete((3, 2)), {"normalize_observations": True}),
    "mask": (MASKED, Discrete(5), {}),
    "multibinary": (Discrete(6), MultiBinary(3), {}),
    "recurrent": (VECTOR, CONTINUOUS, {"gru_units": 7, "normalize_rewards": True}),
}


def policy_of(case: str) -> StoredPolicy:
    """A policy with weights that are all of its own, as after training."""
    observation, action, settings = CASES[case]
    spec = EnvSpec(f"Example-{case}", observation, action)
    algorithm = trimtab.PPO(hidden_sizes=(16, 8), policy_gain=1.0, **settings)
    learner = jax.jit(lambda key: algorithm.init(key, spec))(jax.random.key(1))
    generator = np.random.default_rng(2)

    def changed(leaf: Any) -> Any:
        noise = generator.uniform(0.5, 1.5, np.shape(leaf))
        return (leaf + noise).astype(leaf.dtype) if leaf.dtype == np.float32 else leaf

    statistics = jax.tree.map(changed, learner.observations)
    return StoredPolicy("ppo", algorithm, learner._replace(observations=statistics), spec)


def inputs_of(policy: StoredPolicy) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Random inputs, not the export's own nor as many, and what the policy does with them."""
    graph, call, _ = graph_of(policy)
    inputs = {
        name: array[:7]
        for name, array in random_inputs(policy, graph, np.random.default_rng(3)).items()
    }
    return inputs, call(inputs)


@pytest.mark.parametrize("case", CASES)
def test_onnx_acts_as_the_policy_does(tmp_path: Path, case: str) -> None:
    policy = policy_of(case)
    made = export(policy, "onnx", tmp_path / "policy.onnx")
    assert made.size == made.path.stat().st_size
    inputs, expected = inputs_of(policy)
    session = onnxruntime.InferenceSession(made.path)
    assert {port.name for port in session.get_inputs()} == set(inputs)
    names = [port.name for port in session.get_outputs()]
    for name, found in zip(names, session.run(names, inputs), strict=True):
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-5)
        assert found.dtype == expected[name].dtype
    if not case.startswith("recurrent"):
        assert names == ["action"]
        obs = inputs.get("obs")
        if obs is not None:
            np.testing.assert_allclose(policy.actions(obs), expected["action"], atol=1e-6)


@pytest.mark.parametrize("case", ["continuous", "dict"])
@pytest.mark.parametrize("to", ["safetensors", "numpy"])
def test_weights_say_how_to_apply_them(tmp_path: Path, to: str, case: str) -> None:
    policy = policy_of(case)
    made = export(policy, to, file_for(to, None, tmp_path))
    graph, header = weights.read(made.path)
    inputs, expected = inputs_of(policy)
    found = evaluate(graph, inputs)["action"]
    np.testing.assert_allclose(found, expected["action"], rtol=1e-5, atol=1e-5)
    assert header["environment"] == f"Example-{case}"
    layer = np.asarray(policy.learner.parameters.network().actor.layers[0].weight)
    np.testing.assert_array_equal(graph.constants["network/actor/layers/0/weight"], layer)


def test_a_file_of_onnx_says_what_it_is(tmp_path: Path) -> None:
    made = export(policy_of("recurrent"), "onnx", tmp_path / "policy.onnx")
    about = {one.key: json.loads(one.value) for one in onnx.load(made.path).metadata_props}
    assert about["environment"] == "Example-recurrent"
    assert about["first_memory"] == {"memory/hidden": [0.0] * 7}
    assert about["action_space"]["Box"]["high"] == [2.0, 5.0]


def test_a_policy_that_would_act_otherwise_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trimtab.export import onnx_file

    honest = onnx_file.run_onnx

    def wrong(content: bytes, inputs: Any) -> Any:
        return {name: array + 1e-3 for name, array in honest(content, inputs).items()}

    monkeypatch.setattr(onnx_file, "run_onnx", wrong)
    with pytest.raises(ExportError, match="was not exported: as onnx, its outputs differ by up to"):
        export(policy_of("continuous"), "onnx", tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_what_has_no_rule_is_named(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Sorting(trimtab.PPO):
        def best_action(self, actor: Any, memory: Any, obs: Any) -> Any:
            return jax.numpy.sort(obs)[:2], memory

    policy = policy_of("continuous")
    odd = StoredPolicy("ppo", Sorting(), policy.learner, policy.spec)
    with pytest.raises(ExportError, match="it uses 'sort', for which there is no rule"):
        export(odd, "numpy", tmp_path / "policy.npz")


def test_a_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.export.formats.find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"pip install 'trimtab\[onnx\]'"):
        file_for("onnx", None, Path())
    with pytest.raises(SettingError, match="Did you mean 'safetensors'"):
        file_for("safetensor", None, Path())


def test_another_file_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    with pytest.raises(ExportError, match="was not written by its export"):
        weights.read(tmp_path / "other.npz")
