"""``trimtab sync``."""

from collections.abc import Sequence

from trimtab.cli.flags import Command, Flag, parse
from trimtab.errors import SettingError, TrackerError
from trimtab.log.sinks import TrackerName, missing
from trimtab.settings import Bounds

SYNC = Command(
    "sync",
    "Send what trackers missed of a run: they were down, or the run was not tracked at all.",
    [
        Flag("run", str, "", "the run's folder", metavar="RUN", positional=True),
        Flag(
            "track",
            tuple[TrackerName, ...],
            (),
            "trackers: tensorboard, wandb, mlflow; none: those of the run",
        ),
        Flag(
            "patience",
            float,
            60.0,
            "seconds until a tracker is given up [above 0 and at most 86400]",
            Bounds(above=0, at_most=86_400),
        ),
        Flag("json", bool, False, "for programs: one JSON object, on one line", pair=False),
    ],
)


def sync_command(arguments: Sequence[str]) -> int:
    """``trimtab sync RUN``"""
    values = parse(SYNC, arguments)

    from trimtab.settings import replaced
    from trimtab.training.config import TrainSettings
    from trimtab.training.rundir import RunFolder
    from trimtab.training.tracking import synchronised

    folder = RunFolder.open(values["run"])
    stored = folder.read_config()["training"]
    own = replaced(TrainSettings(), stored, str(folder.config_path)).track
    trackers = values["track"] or own
    if not trackers:
        raise SettingError(
            f"The run {folder.path} names no tracker: say which with --track, such as "
            "--track tensorboard."
        )
    for tracker in trackers:
        if sentence := missing(tracker):
            raise SettingError(sentence)
    with folder.lock():
        answers = synchronised(folder, trackers, values["patience"])
    failed = {tracker: why for tracker, why in answers.items() if why}
    if values["json"]:
        from trimtab.cli.words import json_line

        print(json_line({"run": folder.path, "trackers": list(trackers), "failed": failed}))
    for tracker in () if values["json"] else trackers:
        if tracker not in failed:
            print(f"{tracker} has all of {folder.path}")
    if failed:
        reasons = "; ".join(f"{tracker}: {why}" for tracker, why in failed.items())
        raise TrackerError(
            f"Not all of {folder.path} could be sent ({reasons}). Nothing is lost: the same "
            "command tries again."
        )
    return 0
