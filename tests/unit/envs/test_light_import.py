"""The light import of gymnax, each time in a process of its own."""

import subprocess
import sys

HEAVY = "{'matplotlib', 'seaborn', 'pandas', 'scipy', 'flax.linen', 'flax.core'} & set(sys.modules)"


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_heavy_libraries_wait_until_they_are_used() -> None:
    program = f"""
import sys
from trimtab.envs.light_import import import_gymnax
gymnax = import_gymnax()
assert import_gymnax() is gymnax is sys.modules["gymnax"]
gymnax.make("CartPole-v1")
assert not {HEAVY}, {HEAVY}

from gymnax.environments.misc import pong
pong.plt.rcParams["backend"] = "Agg"
figure, axes = pong.plt.subplots()
import matplotlib.pyplot
assert isinstance(figure, matplotlib.pyplot.Figure)
assert pong.colors.ListedColormap is matplotlib.colors.ListedColormap
print("used")
"""
    assert run(program) == "used"


def test_flax_is_whole_for_those_who_ask() -> None:
    light = "from trimtab.envs.light_import import import_gymnax; import_gymnax()\n"
    uses = (
        "import flax.linen; print(flax.__version__)",
        "import flax; flax.linen.Dense; print(flax.__version__)",
        "import flax.serialization; from flax import core, struct; import flax;"
        "print(flax.__version__)",
    )
    assert len({run(light + use) for use in uses}) == 1


def test_fallback_is_the_plain_import() -> None:
    program = """
import sys
from trimtab.envs import light_import
def broken(self, name):
    raise RuntimeError("no stand-in today")
light_import._StandIn.__getattr__ = broken
gymnax = light_import.import_gymnax()
gymnax.make("CartPole-v1")
import matplotlib.pyplot, flax
assert sys.modules["gymnax.environments.misc.pong"].plt is matplotlib.pyplot
print(flax.__version__ > "", matplotlib.pyplot.subplots.__name__)
"""
    assert run(program) == "True subplots"


def test_what_is_imported_already_is_used() -> None:
    program = """
import flax, matplotlib.colors
from trimtab.envs.light_import import import_gymnax
import_gymnax()
from gymnax.environments.misc import pong
assert pong.colors is matplotlib.colors
print(type(flax).__name__)
"""
    assert run(program) == "module"
