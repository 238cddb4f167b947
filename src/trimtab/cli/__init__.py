"""The ``trimtab`` command."""

from trimtab.cli.command import console, main

__all__ = ["console", "main"]
