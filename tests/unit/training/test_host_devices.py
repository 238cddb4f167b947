"""In which threads a run on host environments computes."""

import pytest

from trimtab.api import device_plan
from trimtab.configuration import default_configuration
from trimtab.errors import SettingError
from trimtab.training.devices import DevicePlan

ENV = "gymnasium:CartPole-v1"


def planned(env=ENV, **settings):
    configuration = default_configuration(env, "ppo").with_values(settings, "test").checked()
    return device_plan(configuration, env)


def test_a_small_policy_acts_in_the_thread_that_steps():
    assert planned(num_envs=8, num_steps=32) == DevicePlan(1, single_thread=True, inline=True)


def test_a_large_one_may_use_all_cores():
    wide = {"num_envs": 8, "num_steps": 128, "hidden_sizes": (512, 512)}
    assert planned(**wide) == DevicePlan(1, single_thread=False, inline=True)


def test_lanes_that_are_served_first_come_first_served_never_wait_for_the_learner():
    found = planned(num_envs=8, num_steps=32, vectorization="async")
    assert found == DevicePlan(1, single_thread=False, inline=False)


def test_a_compiled_run_hands_its_programs_over():
    assert not planned("CartPole-v1", num_envs=8, num_steps=32).inline


def test_devices_that_would_not_be_used_are_refused():
    with pytest.raises(SettingError, match="devices = 2 has no effect on an environment outside"):
        planned(devices="2")
