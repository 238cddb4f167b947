"""Going on with a run otherwise than it began: what may change, what that means, what is noted."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.configuration import Configuration
from trimtab.errors import SettingError, did_you_mean
from trimtab.log.progress import Progress
from trimtab.opening import stored_configuration, write_config
from trimtab.training.checkpoint import exists, library_versions, read_manifest
from trimtab.training.comparison import Pairs, table_differences
from trimtab.training.devices import DevicePlan
from trimtab.training.groupdir import is_group
from trimtab.training.machine import machine_facts
from trimtab.training.rundir import PACKAGES, RunFolder

RESUME = ("never", "auto")


def goes_on(resume: str, run_dir: Path | str | None) -> bool:
    """Whether training is to go on with what the folder holds, and not to begin there.

    ``auto`` does where a run, or a group of them, has begun in it.
    """
    if resume not in RESUME:
        raise SettingError(
            f"resume = {resume!r} is not valid: expected {' or '.join(map(repr, RESUME))}."
            f"{did_you_mean(str(resume), RESUME)}"
        )
    if resume == "never":
        return False
    if not run_dir:
        raise SettingError(
            "resume = auto needs run_dir (--run-dir): the folder of the run to go on with."
        )
    folder = Path(run_dir).expanduser()
    return is_group(folder) or os.path.isfile(folder / "config.toml")


def require_run(path: Path, configuration: Configuration) -> None:
    """Refuse to go on with the run in the folder if it is not the one that is asked for."""
    folder = RunFolder.open(path)
    require_continuation(folder, stored_configuration(folder), configuration)


def changes(before: Configuration, after: Configuration) -> Pairs:
    """The settings in which two configurations differ."""
    ours, theirs = _settings(before), _settings(after)
    return {
        name: (ours.get(name), theirs.get(name))
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
    }


def _settings(configuration: Configuration) -> dict[str, Any]:
    return {
        "environment": configuration.env_id,
        "algorithm": configuration.algorithm_name,
        **{f"env_option {name}": value for name, value in configuration.env_options.items()},
        **dataclasses.asdict(configuration.training),
        **dataclasses.asdict(configuration.algorithm),
    }


def require_continuation(folder: RunFolder, stored: Configuration, given: Configuration) -> None:
    """Refuse settings that contradict those of the run in the folder; it may be made longer."""
    measured = ("vectorization", "num_workers") if _is_measured(given) else ()
    lines = [
        f"{name} is {_shown(there)} there and {_shown(here)} here"
        for name, (there, here) in changes(stored, given).items()
        if name not in measured and (name != "total_steps" or here < there)
    ]
    if lines:
        raise SettingError(
            f"The run in {folder.path} cannot go on with these settings: {'; '.join(lines)}. Only "
            "total_steps may change, and only be raised. Give the run's own settings, or another "
            "folder with --run-dir."
        )


def _is_measured(configuration: Configuration) -> bool:
    """Whether it was left to the run how its environments are stepped."""
    return configuration.training.vectorization == "auto"


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def changes_words(changed: Pairs, after: Configuration) -> list[str]:
    """What a change of settings means for a run that goes on, a sentence each."""
    sentences = []
    for name, (old, new) in changed.items():
        if name != "total_steps":
            sentences.append(f"From here on, {name} is {_shown(new)}, and no longer {_shown(old)}.")
            continue
        words = f"total_steps goes from {old:,} to {new:,}."
        if scheduled := scheduled_settings(after.algorithm):
            words += (
                f" What is scheduled ({', '.join(scheduled)}) is computed anew for the whole of "
                "it, and so jumps here."
            )
        if not after.training.eval_every:
            words += (
                f" So are the {after.training.eval_count} evaluations, which are spread over it."
            )
        sentences.append(words)
    return sentences


def scheduled_settings(algorithm: Any) -> list[str]:
    """The settings whose values depend on how far the run has come."""
    values = dataclasses.asdict(algorithm)
    names = [
        name.removesuffix("_schedule")
        for name, value in values.items()
        if (name.endswith("_schedule") and value != "constant")
    ]
    warmed = [
        name.removesuffix("_warmup")
        for name, value in values.items()
        if name.endswith("_warmup") and value is not None
    ]
    return list(dict.fromkeys([*names, *warmed]))


def note_how_it_goes_on(
    folder: RunFolder,
    before: Configuration,
    after: Configuration,
    devices: DevicePlan,
    progress: Progress,
) -> None:
    """Say and record what is other than when the run began: settings, versions, the machine."""
    changed = changes(before, after)
    latest = folder.checkpoint_path("latest")
    if not exists(latest):  # nothing is left of what was done with other settings
        if changed:
            write_config(folder, after, devices, folder.read_config().get("extra"))
        return
    note: dict[str, Any] = {"steps": int(read_manifest(latest)["steps"])}
    if changed:
        note["changed"] = {name: list(pair) for name, pair in changed.items()}
    for sentence in changes_words(changed, after):
        progress.say(sentence)
    if elsewhere := list(table_differences(folder.read_config(), _here(), tuple(_here()))):
        note["elsewhere"] = elsewhere
        progress.say(
            f"The run goes on elsewhere than where it began ({', '.join(elsewhere)} differ), so "
            "its numbers may differ in their last digits from those of one that never stopped."
        )
    if changed:
        write_config(folder, after, devices, folder.read_config().get("extra"))
    if len(note) > 1:
        folder.note_resume(note)


def _here() -> Mapping[str, Any]:
    return {"versions": library_versions(*PACKAGES), "machine": machine_facts()}
