"""What holds for every test: two devices, strict dtypes, checked types, repeatable examples."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Generator

# No test may read or fill the user's compilation cache. The tests share one of their own, since
# many compile the same programs; workers and child processes inherit it.
if "TRIMTAB_TEST_CACHE" not in os.environ:
    folder = tempfile.mkdtemp(prefix="trimtab-tests-")
    os.environ["TRIMTAB_TEST_CACHE"] = os.environ["XDG_CACHE_HOME"] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

import hypothesis
import jax
import jaxtyping
import pytest

from trimtab.training.devices import use_compilation_cache

# Two devices on any machine, so that sharding is exercised. This must come before the first use
# of a device, which fixes their number.
jax.config.update("jax_num_cpu_devices", 2)

# An int32 that meets a float32 is an error, here and in fixtures of every scope.
jax.config.update("jax_numpy_dtype_promotion", "strict")

use_compilation_cache(jax)

# Annotations of the numerical layers are checked at every call. This must come before trimtab
# is imported.
jaxtyping.install_import_hook(["trimtab.ops", "trimtab.nets"], "beartype.beartype")

# Compiling makes the first example slow, so there is no deadline; derandomised, so that a failure
# belongs to the change that it appears with.
hypothesis.settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True)
# For a deeper search by hand: HYPOTHESIS_PROFILE=deep
hypothesis.settings.register_profile("deep", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests marked ``loose_dtypes``, and the fixtures that they set up, promote as usual."""
    if item.get_closest_marker("loose_dtypes") is None:
        return (yield)
    with jax.numpy_dtype_promotion("standard"):
        return (yield)
