"""A configuration in another library's words, and back. No JAX."""

import dataclasses
import tomllib
from collections.abc import Mapping
from typing import Any

from trimtab.configuration import Configuration
from trimtab.errors import SettingError, did_you_mean
from trimtab.explain.dialects import DIALECTS, REQUIRED, Dialect, Word
from trimtab.explain.geometry import discount
from trimtab.settings import setting_names
from trimtab.training.config import check_minibatches

# Settings whose effect is in the shape of the run, which is translated as a whole.
_OF_SHAPE = ("total_steps", "eval_every", "eval_count")
_MAY_BE_ZERO = ("num_evals", "num_resets_per_eval")


@dataclasses.dataclass(frozen=True)
class Translation:
    """Settings, and what is to be known about them."""

    library: str
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


def word_of(text: str) -> tuple[str, Any]:
    """``num_envs=2048`` as a name and a value, as Python, TOML or YAML would write it."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise SettingError(f"{text!r} is not valid: expected NAME=VALUE, such as num_envs=2048.")
    if value.lower() in ("none", "null"):
        return name, None
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value


def translated_from(name: str, given: Mapping[str, Any]) -> Translation:
    """What another library's settings are here; what is not given has that library's default."""
    library = dialect(name)
    words = {word.theirs: word for word in library.words}
    known = [*library.shape, *words, *library.untold, *library.aliases]
    for word in given:
        if word not in known:
            raise SettingError(f"{name}: there is no setting {word!r}.{did_you_mean(word, known)}")
        rival = library.aliases.get(word)
        if rival in given:
            raise SettingError(f"{name}: {word} and {rival} are the same: give one of them.")
    given = {library.aliases.get(word, word): value for word, value in given.items()}
    shape = {
        word: _checked(name, word, given.get(word, default), default)
        for word, default in library.shape.items()
    }
    settings, notes = library.read_shape(shape)
    settings |= library.always
    for word in library.words:
        value = given.get(word.theirs, word.default)
        settings |= _read(name, word, value)
    notes += [f"{word}: {library.untold[word]}." for word in given if word in library.untold]
    return Translation(name, settings, notes)


def _checked(library: str, word: str, value: Any, default: Any) -> Any:
    """A word of the shape: a count, or what its default is of."""
    if value is REQUIRED:
        raise SettingError(f"{library}: {word} is missing: give {word}=NUMBER.")
    if isinstance(default, bool | float):
        return _like(library, word, value, default)
    if default is None and value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 2e7 is how many people write it
    if not isinstance(value, int) or isinstance(value, bool):
        raise SettingError(f"{library}: {word} = {value!r} is not valid: expected a whole number.")
    least = 0 if word in _MAY_BE_ZERO else 1
    if value < least:
        raise SettingError(
            f"{library}: {word} = {value} is out of bounds: expected {least} or more."
        )
    return value


def _read(library: str, word: Word, value: Any) -> dict[str, Any]:
    """What a word sets here. A seed of None is any seed: the default is as good."""
    if value is None:
        return {} if word.ours == "seed" else {word.ours: None}
    return {word.ours: word.read(_like(library, word.theirs, value, word.default))}


def _like(library: str, word: str, value: Any, default: Any) -> Any:
    """The value, if it is a switch where the default is one, and a number elsewhere."""
    switch = isinstance(default, bool)
    if isinstance(value, bool) != switch or not isinstance(value, int | float):
        expected = "true or false" if switch else "a number"
        raise SettingError(f"{library}: {word} = {value!r} is not valid: expected {expected}.")
    return value


def translated_to(name: str, configuration: Configuration) -> Translation:
    """A configuration in another library's words, and which of its settings have none there."""
    library = dialect(name)
    if configuration.algorithm_name != "ppo":
        raise SettingError(
            f"{library.title} is PPO, and this is {configuration.algorithm_name}: leave --to out."
        )
    if configuration.algorithm.gru_units is not None:
        raise SettingError(f"{library.title} has no recurrent policy: leave --to or gru_units out.")
    check_minibatches(configuration.training, configuration.algorithm.minibatches, recurrent=False)
    plain = _with_gamma(configuration)
    theirs, notes = library.write_shape(plain)
    values = dataclasses.asdict(plain.training) | dataclasses.asdict(plain.algorithm)
    theirs |= {word.theirs: word.write(values[word.ours]) for word in library.words}
    again = translated_from(name, theirs).settings
    told = changed(plain) | {setting: values[setting] for setting in library.always}
    unsaid = [
        setting
        for setting, value in told.items()
        if setting not in _OF_SHAPE and again.get(setting) != value
    ]
    if unsaid:
        notes.append(f"not said in these words: {', '.join(unsaid)}.")
    return Translation(name, theirs, notes)


def _with_gamma(configuration: Configuration) -> Configuration:
    """A horizon is said as a discount."""
    algorithm = configuration.algorithm
    as_gamma = dataclasses.replace(algorithm, horizon=None, gamma=discount(algorithm))
    return dataclasses.replace(configuration, algorithm=as_gamma)


def changed(configuration: Configuration, before: Configuration | None = None) -> dict[str, Any]:
    """The settings that are not as they were before, or else not at their defaults."""
    found: dict[str, Any] = {}
    for of in ("training", "algorithm"):
        now = getattr(configuration, of)
        then = type(now)() if before is None else getattr(before, of)
        found |= {
            name: getattr(now, name)
            for name in setting_names(now)
            if getattr(now, name) != getattr(then, name)
        }
    return found
