"""A run's whole configuration: environment, algorithm, settings, and where each came from.

Precedence, lowest first: the settings' defaults, the environment's preset, a TOML file, then what
is given by flag or keyword. Nothing here imports JAX.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.algos.settings import ALGORITHMS
from trimtab.collect.settings import check_host
from trimtab.envs.kinds import kind_of, kind_of_id
from trimtab.errors import SettingError, did_you_mean
from trimtab.log.secrets import names_of_secrets
from trimtab.settings import checked, replaced, setting_names
from trimtab.spaces import EnvSpec
from trimtab.training.config import (
    TrainSettings,
    check_evaluations,
    check_lab,
    check_minibatches,
    check_tracking,
)
from trimtab.training.presets import Preset, preset_for


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Everything that decides what a run computes."""

    env_id: str
    env_options: Mapping[str, Any]
    algorithm_name: str
    training: TrainSettings
    algorithm: Any  # the algorithm's settings
    preset: Preset = Preset()  # what was put over the defaults

    def checked(self) -> "Configuration":
        """With values of the right types, or a SettingError that says what is wrong."""
        whole = self.consistent()
        recurrent = whole.algorithm.gru_units is not None
        check_minibatches(whole.training, whole.algorithm.minibatches, recurrent)
        return whole

    def consistent(self) -> "Configuration":
        """As checked, but minibatches need not divide the rollout: explain tells of those."""
        training, algorithm = checked(self.training), checked(self.algorithm)
        algorithm.check()
        check_evaluations(training)
        check_tracking(training)
        check_host(training, training.num_envs)
        check_lab(training)
        check_secrets(self.env_options)
        return dataclasses.replace(self, training=training, algorithm=algorithm)

    def with_values(self, values: Mapping[str, Any], source: str) -> "Configuration":
        """With ``values`` for settings of the run or of the algorithm, whichever has the name."""
        of_run, of_algorithm = setting_names(self.training), setting_names(self.algorithm)
        for name in values:
            if name not in of_run and name not in of_algorithm:
                raise SettingError(
                    f"{source}: there is no setting {name!r}."
                    f"{did_you_mean(name, [*of_run, *of_algorithm])}"
                )
        return dataclasses.replace(
            self,
            training=replaced(self.training, _only(values, of_run), source),
            algorithm=replaced(self.algorithm, _only(values, of_algorithm), source),
        )

    def with_file(self, path: Path) -> "Configuration":
        """With the settings of a TOML file: at its top, or in the algorithm's own table.

        The ``config.toml`` of a run is such a file too; then the environment must be the same.
        """
        tables = read_toml(path)
        if "schema_version" in tables:
            return self._with_run(tables, str(path))
        flat = {key: value for key, value in tables.items() if not isinstance(value, dict)}
        for name, table in tables.items():
            if isinstance(table, dict):
                if name != self.algorithm_name:
                    raise SettingError(
                        f"{path}: there is no table [{name}] for a run of {self.algorithm_name}."
                        f"{did_you_mean(name, [self.algorithm_name])}"
                    )
                flat |= table
        return self.with_values(flat, str(path))

    def _with_run(self, tables: Mapping[str, Any], path: str) -> "Configuration":
        """With all that a run recorded of itself."""
        environment = _table(tables, "environment", path)
        for what, recorded, here in (
            ("environment", environment.get("id"), self.env_id),
            ("algorithm", tables.get("algorithm_name"), self.algorithm_name),
        ):
            if recorded != here:
                raise SettingError(
                    f"{path} is of a run with the {what} {recorded!r}, not {here!r}. Copy the "
                    f"settings that are wanted into a file of their own."
                )
        settings = {**_table(tables, "training", path), **_table(tables, "algorithm", path)}
        configuration = self.with_values(settings, path)
        return configuration.with_env_options(_table(environment, "options", path, {}))

    def with_env_options(self, options: Mapping[str, Any]) -> "Configuration":
        """With these options of the environment beside those it has."""
        return dataclasses.replace(self, env_options={**self.env_options, **options})


def check_secrets(env_options: Mapping[str, Any]) -> None:
    """Refuse a password among the options: they are written to the run's folder and to trackers."""
    for name in names_of_secrets(env_options):
        raise SettingError(
            f"The environment's option {name} looks like a secret, and options are recorded in "
            "config.toml and sent to trackers. Let the environment read it from a variable."
        )


def _table(
    tables: Mapping[str, Any], name: str, path: str, absent: Any = None
) -> Mapping[str, Any]:
    table = tables.get(name, absent)
    if not isinstance(table, dict):
        raise SettingError(f"{path}: expected a table [{name}], as a run's config.toml has it.")
    return table


def default_configuration(
    env_id: str,
    algorithm_name: str,
    env_options: Mapping[str, Any] | None = None,
    spec: EnvSpec | None = None,
) -> Configuration:
    """The defaults, with the environment's preset over them.

    ``spec`` is what the environment says of itself, where its id is not enough to know that.
    """
    if algorithm_name not in ALGORITHMS:
        raise SettingError(
            f"There is no algorithm {algorithm_name!r}: expected one of {', '.join(ALGORITHMS)}."
            f"{did_you_mean(algorithm_name, ALGORITHMS)}"
        )
    options = dict(env_options or {})
    preset = preset_for(
        env_id, algorithm_name, lambda: kind_of(spec) if spec else kind_of_id(env_id, options)
    )
    algorithm = ALGORITHMS[algorithm_name]()
    plain = Configuration(env_id, options, algorithm_name, TrainSettings(), algorithm, preset)
    return plain.with_values(preset.values, f"the preset {preset.name}")


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's tables; a missing or malformed file is a SettingError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise SettingError(f"The configuration file {path} cannot be read: {reason}.") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"The configuration file {path} is not valid TOML: {error}.") from None


def _only(values: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}
