"""What hangs in the trainer's own process is ended with a sentence."""

import signal
import time

import pytest
from broken_envs import NoConstruction

from trimtab.envs import sources
from trimtab.envs.patience import at_most
from trimtab.errors import EnvironmentFaultError


def test_a_constructor_that_hangs_is_named(monkeypatch):
    monkeypatch.setattr(sources, "START_SECONDS", 0.2)
    begun = time.monotonic()
    with pytest.raises(EnvironmentFaultError, match=r"with NoConstruction took longer than 0.2 s"):
        sources.source_of(NoConstruction)
    assert time.monotonic() - begun < 5


def test_what_is_quick_enough_is_left_alone():
    before = signal.getsignal(signal.SIGALRM)
    with at_most(0.2, "Nothing"):
        assert signal.getsignal(signal.SIGALRM) is not before
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
