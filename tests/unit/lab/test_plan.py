"""Splits, batches and memory: bad input is answered with what would do."""

import pytest

from trimtab.errors import SettingError
from trimtab.lab import plan
from trimtab.lab.plan import Split


def test_splits_are_read_lanes_first():
    assert plan.parse_splits("4x32, 32×4") == (Split(4, 32), Split(32, 4))
    assert str(Split(4, 32)) == "4×32"


@pytest.mark.parametrize("text", ["4", "4x", "0x32", "axb", "4x32x2"])
def test_what_is_no_split_is_refused(text):
    with pytest.raises(SettingError, match="expected lanes × steps"):
        plan.parse_splits(text)


def test_a_split_that_minibatches_do_not_divide_is_refused():
    with pytest.raises(SettingError, match=r"30 transitions cannot be divided.*minibatches = 4"):
        plan.check_splits([Split(5, 6)], 4)


def test_one_transition_has_no_variance():
    with pytest.raises(SettingError, match="no variance"):
        plan.check_splits([Split(1, 1)], 1)


def test_too_few_batches_get_no_interval():
    with pytest.raises(SettingError, match="too few for an interval"):
        plan.check_batches(19)


@pytest.mark.parametrize(
    ("batches", "expected"), [(200, (20, 10)), (20, (20, 1)), (50, (10, 5)), (37, (19, 2))]
)
def test_groups_are_equal(batches, expected):
    assert plan.grouping(batches) == expected


def test_groups_are_enough_for_an_interval():
    for batches in range(plan.FEWEST_BATCHES, 300):
        groups, size = plan.grouping(batches)
        assert 10 <= groups <= 20
        assert batches <= groups * size < batches + size


def test_default_splits_have_one_budget_and_hold_the_runs_own():
    splits = plan.default_splits(128, Split(2, 64))
    assert Split(2, 64) in splits
    assert all(split.samples == 128 for split in splits)
    assert len(splits) >= 4


@pytest.mark.parametrize("text", ["2", "-0.1", "much"])
def test_lambda_is_a_share(text):
    with pytest.raises(SettingError, match="from 0 to 1"):
        plan.parse_traces(text)


def test_small_gradients_are_kept_whole():
    assert plan.storage_for(Split(4, 32), 8_000, 20, 2e9) == plan.Storage(0, 0)


def test_a_million_parameters_over_65536_samples_are_sketched_within_four_gigabytes():
    storage = plan.storage_for(Split(1024, 64), 1_000_000, 20, 3e9)
    assert storage.sketch >= 1000
    assert 65_536 % storage.chunk == 0
    assert storage.chunk * 1_000_000 * 4 * 5 < 3e9
    assert 0 < storage.error < 0.05


def test_too_little_memory_is_refused_with_what_would_do():
    with pytest.raises(SettingError, match=r"needs [\d.]+ GB or more"):
        plan.storage_for(Split(1024, 64), 1_000_000, 20, 1e7)
