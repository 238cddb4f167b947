"""The errors that trimtab raises on purpose.

Each message names what was given, what was expected, and what to do. The command line prints
the message without a traceback and exits with code 2.
"""

import difflib
from collections.abc import Iterable


class TrimtabError(Exception):
    """Base of every error that a user can mend. Catch this one to catch them all."""


class SettingError(TrimtabError):
    """A setting is misspelt, of the wrong type, out of bounds, or contradicts another."""


class TooLargeError(SettingError):
    """This machine's memory would not hold what the settings ask for."""


class UnknownEnvironmentError(TrimtabError):
    """No environment has that id, or the package that provides it is not installed."""


class EnvironmentFaultError(TrimtabError):
    """An environment broke its contract: NaN, a wrong shape, an exception of its own."""


class UnsupportedSpaceError(TrimtabError):
    """The algorithm cannot act in, or see, a space of this kind."""


class RunFolderError(TrimtabError):
    """A run folder cannot be written, is in use, or is not a run folder."""


class CheckpointError(TrimtabError):
    """A checkpoint is damaged, of a newer format, or belongs to something else."""


class ExportError(TrimtabError):
    """A policy cannot be written as what was asked for, or read from what was given."""


class TrackerError(TrimtabError):
    """A tracker did not take what it was to be sent."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint is not what was saved: a file is missing, cut short or altered."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A half sentence with the nearest known names, or nothing when none is near."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given.lower(), by_lower, n=3, cutoff=0.6)
    likeness = [difflib.SequenceMatcher(None, name, given.lower()).ratio() for name in near]
    # Names that are much less alike than the best one only distract from it.
    close = [n for n, ratio in zip(near, likeness, strict=True) if ratio > likeness[0] - 0.1]
    names = [by_lower[name] for name in close]
    return f" Did you mean {' or '.join(repr(name) for name in names)}?" if names else ""
