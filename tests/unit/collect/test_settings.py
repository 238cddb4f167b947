"""Settings of host environments that contradict each other, or have no effect, are refused."""

import pytest

from trimtab.collect.settings import (
    HostSettings,
    check_host,
    refuse_host_settings,
    workers_for,
)
from trimtab.errors import SettingError
from trimtab.training.config import TrainSettings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": 2}, "num_workers = 2 has no effect without workers: add --vectorization"),
        ({"max_staleness": 9, "vectorization": "workers"}, "max_staleness = 9 .*async"),
        ({"overlap": True, "vectorization": "async"}, "overlap = True has no effect with async"),
        ({"step_deadline": 1.0, "vectorization": "in-process"}, "step_deadline = 1.0 has no effe"),
        ({"start_deadline": 1.0, "vectorization": "envpool"}, "start_deadline = 1.0 has no effect"),
        ({"num_workers": 9, "vectorization": "workers"}, "num_workers = 9 .* num_envs = 8"),
        ({"num_workers": 3, "vectorization": "async"}, "Those that divide: 1, 2, 4, 8"),
    ],
)
def test_what_has_no_effect_is_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        check_host(HostSettings(**settings), num_envs=8)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"overlap": True},
        {"vectorization": "workers", "num_workers": 3, "overlap": True, "step_deadline": 1.0},
        {"vectorization": "async", "num_workers": 4, "max_staleness": 0},
        {"vectorization": "in-process", "on_bad_env": "reset", "max_restarts": 0},
    ],
)
def test_what_has_an_effect_is_not(settings):
    check_host(HostSettings(**settings), num_envs=8)


def test_a_compiled_environment_takes_none_of_them():
    refuse_host_settings(TrainSettings(num_envs=8), "CartPole-v1")
    with pytest.raises(SettingError, match=r"on_bad_env = reset has no effect on CartPole-v1"):
        refuse_host_settings(TrainSettings(on_bad_env="reset"), "CartPole-v1")


def test_how_many_workers(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    workers, first_come = HostSettings(), HostSettings(vectorization="async")
    assert [workers_for(workers, n) for n in (1, 3, 64)] == [1, 3, 4]
    assert [workers_for(first_come, n) for n in (1, 8, 24, 17)] == [1, 8, 12, 1]
    assert workers_for(HostSettings(vectorization="workers", num_workers=7), 8) == 7


def test_only_async_cannot_be_reproduced():
    assert HostSettings(vectorization="workers", overlap=True).reproducible
    assert not HostSettings(vectorization="async").reproducible


def test_the_policy_and_the_deadlines_are_those_that_were_given():
    settings = HostSettings(
        on_bad_env="reset",
        max_restarts=3,
        observation_bounds="ignore",
        step_deadline=1.5,
        start_deadline=2.5,
    )
    policy, deadlines = settings.policy, settings.deadlines
    assert (policy.on_bad_env, policy.max_restarts) == ("reset", 3)
    assert policy.observation_bounds == "ignore"
    assert (deadlines.step, deadlines.start) == (1.5, 2.5)
