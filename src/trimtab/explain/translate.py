"""A configuration in another library's words, and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from trimtab.configuration import Configuration
from trimtab.errors import SettingError, did_you_mean
from trimtab.explain.dialects import DIALECTS, REQUIRED, Dialect
from trimtab.settings import setting_names


@dataclasses.dataclass(frozen=True)
class Translation:
    """Settings, and what is to be known about them."""

    settings: dict[str, Any]
    notes: list[str]


def dialect(name: str) -> Dialect:
    """The library of that name."""
    if name not in DIALECTS:
        raise SettingError(
            f"There is no translation for {name!r}: expected {', '.join(DIALECTS)}."
            f"{did_you_mean(name, DIALECTS)}"
        )
    return DIALECTS[name]


def translated_from(name: str, given: Mapping[str, Any]) -> Translation:
    """What another library's settings are here; what is not given has that library's default."""
    library = dialect(name)
    known = [*library.shape, *(word.theirs for word in library.words), *library.untold]
    for word in given:
        if word not in known:
            raise SettingError(f"{name}: there is no setting {word!r}.{did_you_mean(word, known)}")
    shape = {word: given.get(word, default) for word, default in library.shape.items()}
    for word, value in shape.items():
        if value is REQUIRED:
            raise SettingError(f"{name}: {word} is missing: give {word}=NUMBER.")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise SettingError(f"{name}: {word} = {value!r} is not valid: expected a whole number.")
        if value < 1 and word not in ("num_evals", "num_resets_per_eval"):
            raise SettingError(f"{name}: {word} = {value} is out of bounds: expected 1 or more.")
    settings, notes = library.read_shape(shape)
    settings |= library.always
    for word in library.words:
        settings[word.ours] = word.read(given.get(word.theirs, word.default))
    notes += [f"{word}: {library.untold[word]}." for word in given if word in library.untold]
    return Translation(settings, notes)


def translated_to(name: str, configuration: Configuration) -> Translation:
    """A configuration in another library's words, and which of its settings have none there."""
    library = dialect(name)
    if configuration.algorithm_name != "ppo":
        raise SettingError(
            f"{library.title} is PPO, and this is {configuration.algorithm_name}: leave --to out."
        )
    theirs, notes = library.write_shape(configuration)
    values = dataclasses.asdict(configuration.training) | dataclasses.asdict(
        configuration.algorithm
    )
    theirs |= {word.theirs: word.write(values[word.ours]) for word in library.words}
    again = translated_from(name, theirs).settings
    unsaid = [
        setting
        for setting, value in changed(configuration).items()
        if again.get(setting) != value and setting not in _SHAPE
    ]
    if unsaid:
        notes.append(f"not said in these words: {', '.join(unsaid)}.")
    return Translation(theirs, notes)


# Settings whose effect is in the shape of the run, which is translated as a whole.
_SHAPE = ("total_steps", "eval_every", "devices")


def changed(configuration: Configuration) -> dict[str, Any]:
    """The settings that are not at their defaults."""
    found: dict[str, Any] = {}
    for settings in (configuration.training, configuration.algorithm):
        plain = type(settings)()
        found |= {
            name: getattr(settings, name)
            for name in setting_names(settings)
            if getattr(settings, name) != getattr(plain, name)
        }
    return found
