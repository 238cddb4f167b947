"""The ``trimtab`` command."""

from trimtab.cli.command import main

__all__ = ["main"]
