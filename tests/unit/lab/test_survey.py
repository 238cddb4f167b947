"""Whole surveys, small: what they hold, and that they go on where they were interrupted."""

import json
import re
import signal

import pytest

import trimtab
from trimtab.cli.lab import lab_command
from trimtab.errors import SettingError
from trimtab.lab import page
from trimtab.lab.engine import Laboratory
from trimtab.lab.survey import Survey

PPO = trimtab.PPO(hidden_sizes=(8,), minibatches=2, epochs=2)
SMALL = ("--batches", "20", "--splits", "4x8,8x4")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a lake that is not slippery, with a series of checkpoints."""
    return trimtab.train(
        "FrozenLake-v1",
        PPO,
        run_dir=tmp_path_factory.mktemp("runs") / "lake",
        env_options={"is_slippery": False},
        num_envs=8,
        num_steps=16,
        total_steps=128 * 40,
        keep_every=20,
        eval_episodes=2,
    )


@pytest.fixture(scope="module")
def lake(run, tmp_path_factory):
    """The survey of two of its checkpoints, and what was printed."""
    out = tmp_path_factory.mktemp("lab")
    options = ("--checkpoints", "update-20,update-40", "--heads", "actor,critic,entropy")
    code = lab_command([str(run.path), *SMALL, *options, "--out", str(out)])
    assert code == 0
    return out


def content(folder):
    return json.loads((folder / "lab.json").read_text())


def test_a_series_of_checkpoints_is_measured(lake):
    found = content(lake)
    assert [one["name"] for one in found["moments"]] == ["update-20", "update-40"]
    assert [one["update"] for one in found["moments"]] == [20, 40]
    assert len(found["cells"]) == 4
    assert {one["checkpoint"] for one in found["advice"]} == {"update-20", "update-40"}
    for cell in found["cells"]:
        assert list(cell["heads"]) == ["actor", "critic", "entropy"]
        assert cell["update_seconds"] > 0


def test_a_head_has_its_figures_with_intervals(lake):
    record = content(lake)["cells"][-1]["heads"]["actor"]
    figures = record["figures"]
    parts = [figures[name][0] for name in ("individual", "covariance", "between_lanes")]
    assert sum(parts) == pytest.approx(figures["variance"][0], rel=1e-6)
    value, low, high = figures["effective_samples"]
    assert low < value < high
    assert record["lags"][0][0] == 1
    assert len(record["lags"]) == 4  # of 8×4
    assert [size for size, _ in record["minibatches"]][-1] == 32
    assert record["minibatches"][-1][1][0] == 0  # the whole rollout adds nothing


def test_bias_is_split_by_source_and_both_true_gradients_are_compared(lake):
    found = content(lake)
    bias = found["cells"][-1]["heads"]["actor"]["bias"]
    assert list(bias["sources"]) == ["value function", "truncation", "start", "total"]
    assert bias["sources"]["start"] == pytest.approx(0, abs=0.05)  # lanes are stationary
    assert -1 <= bias["forms_cosine"] <= 1
    assert bias["starts"]["stationary"] == pytest.approx(bias["sources"]["start"])
    assert list(bias["starts"]) == ["stationary", "carried", "fresh"]
    within = found["moments"][-1]["surrogate"]
    assert list(within) == ["policy drift", "clipping", "own data", "total"]
    drift = found["moments"][-1]["drift"]
    assert len(drift["cosine"]) == 4  # gradient steps of an update
    assert drift["ratio_spread"][-1][0] > 0


def test_the_page_is_whole_small_and_needs_no_network(lake):
    text = (lake / "lab.html").read_text()
    assert len(text.encode()) < 2_000_000
    own = text.replace(page.asset("plotly-basic.min.js").replace("</script", "<\\/script"), "")
    assert not re.search(r'(src|href)\s*=\s*["\']', own)
    assert "/*DATA*/" not in text
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)
    assert json.loads(data[1])["settings"]["batches"] == 20


def test_an_interrupted_survey_goes_on_and_is_the_same(run, lake, tmp_path, monkeypatch):
    options = ["--checkpoints", "update-20,update-40", "--heads", "actor,critic,entropy"]
    command = [str(run.path), *SMALL, *options, "--out", str(tmp_path)]
    measure, cells = Survey.cell_record, []

    def interrupted(self, *rest):
        if len(cells) == 1:
            raise KeyboardInterrupt
        cells.append(rest)
        return measure(self, *rest)

    monkeypatch.setattr(Survey, "cell_record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab_command(command)
    assert len(content(tmp_path)["cells"]) == 1
    assert "advice" not in content(tmp_path)
    assert (tmp_path / "lab.html").is_file()
    monkeypatch.setattr(Survey, "cell_record", measure)
    lab_command(command)
    again, whole = content(tmp_path), content(lake)

    def figures(found):
        return [
            (cell["checkpoint"], cell["lanes"], head, record["figures"])
            for cell in found["cells"]
            for head, record in cell["heads"].items()
        ]

    assert figures(again) == figures(whole)
    with pytest.raises(SettingError, match=r"another survey: batches was 20, and is 40"):
        lab_command([*command, "--batches", "40"])


def test_ctrl_c_is_heard_between_computations(run, tmp_path, monkeypatch, capsys):
    """The signal comes while a cell is measured, which is finished to its next group and lost."""
    command = [str(run.path), *SMALL, "--checkpoints", "update-40", "--out", str(tmp_path)]
    measure = Laboratory.reduced

    def signalled(self, *rest):
        if rest[2].lanes == 8:  # the second split
            signal.raise_signal(signal.SIGINT)
        return measure(self, *rest)

    monkeypatch.setattr(Laboratory, "reduced", signalled)
    # A process in the background of a shell ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert lab_command(command) == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert "1 of 2 measurements are in" in capsys.readouterr().err
    assert [cell["lanes"] for cell in content(tmp_path)["cells"]] == [4]
    assert (tmp_path / "lab.html").is_file()


@pytest.mark.slow
def test_host_environments_and_fresh_policies_are_measured_too(tmp_path, capsys):
    settings = tmp_path / "small.toml"
    settings.write_text("hidden_sizes = [8]\nnum_envs = 4\nnum_steps = 8\nminibatches = 2\n")
    command = ["gymnasium:CartPole-v1", "--config", str(settings), *SMALL, "--warm-up", "20"]
    assert lab_command([*command, "--out", str(tmp_path / "out")]) == 0
    found = content(tmp_path / "out")
    assert [one["name"] for one in found["moments"]] == ["fresh"]
    for cell in found["cells"]:
        assert "refusal" not in cell  # its reward is always 1, and it ends
        bias = cell["heads"]["critic"]["bias"]
        assert bias["kind"] == "reference"
        assert bias["truth_variance"] > 0
        low, high = cell["heads"]["critic"]["figures"]["effective_samples"][1:]
        assert 0 < low < high
    printed = capsys.readouterr().out
    assert "effective samples" in printed
    assert "at the end of an update: " in printed


def test_a_policy_without_success_gets_an_explanation_and_no_number(tmp_path, capsys):
    settings = tmp_path / "small.toml"
    settings.write_text("hidden_sizes = [8]\nnum_envs = 4\nnum_steps = 8\n")
    command = ["FrozenLake8x8-v1", "--algo", "a2c", "--config", str(settings), *SMALL]
    options = ("--heads", "critic", "--warm-up", "10", "--out", str(tmp_path / "out"))
    assert lab_command([*command, *options]) == 2
    printed = capsys.readouterr().out
    assert "end of an update" not in printed
    assert "every one of 640 transitions had the reward 0" in printed
    assert "succeeds in 5% of its episodes" in printed
    assert "There is no gradient here to compare." in printed
    assert all(not cell["heads"] for cell in content(tmp_path / "out")["cells"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--batches", "5"), "too few for an interval"),
        (("--splits", "3x5"), "15 transitions cannot be divided"),
        (("--splits", "many"), "expected lanes × steps"),
        (("--heads", "actr"), "actor"),
        (("--heads", ","), "--heads names none"),
        (("--lambdas", "2"), "from 0 to 1"),
        (("--algo", "reinforce", "--lambdas", "0.5"), "no effect on REINFORCE"),
        (("--checkpoints", "all"), "is no run's folder"),
        (("--start", "fresh", "--warm-up", "5"), "no effect with --start fresh"),
    ],
)
def test_bad_input_is_answered(arguments, sentence, tmp_path):
    with pytest.raises(SettingError, match=sentence):
        lab_command(["FrozenLake-v1", *arguments, "--out", str(tmp_path)])


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(SettingError, match="no run's folder, and no environment"):
        lab_command([str(tmp_path)])


def test_a_file_in_the_way_of_the_output_is_named(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(SettingError, match=r"taken cannot be made.*another --out"):
        lab_command(["FrozenLake-v1", *SMALL, "--out", str(tmp_path / "taken")])


def test_what_only_a_fresh_policy_has_is_refused_for_a_run(run):
    with pytest.raises(SettingError, match="--algo has no effect on a run"):
        lab_command([str(run.path), "--algo", "a2c"])
    with pytest.raises(SettingError, match=r"no checkpoint of that name.*update-20"):
        lab_command([str(run.path), "--checkpoints", "update-21"])
    with pytest.raises(SettingError, match="--checkpoints names none"):
        lab_command([str(run.path), "--checkpoints", ","])


def test_a_policy_with_a_memory_is_refused(tmp_path):
    settings = tmp_path / "memory.toml"
    settings.write_text("gru_units = 8\n")
    with pytest.raises(SettingError, match="goes back through time"):
        lab_command(["CartPole-v1", "--config", str(settings), "--out", str(tmp_path)])
