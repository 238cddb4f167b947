"""``python -m trimtab``: the same as ``trimtab``."""

import sys

from trimtab.cli import console

sys.exit(console())
