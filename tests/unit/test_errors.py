"""Error messages are one line, safe to print, and of bounded length."""

import os
from pathlib import Path

import pytest

import arith_erd as ae
from arith_erd.catalog.loading import list_pretrained, load_weights
from arith_erd.checks import user_path
from arith_erd.errors import MAX_MESSAGE_LENGTH, UserError, first_line, nearest
from arith_erd.report.__main__ import main as report
from arith_erd.runs.__main__ import main as list_runs
from arith_erd.runs.directory import require_runs


def test_message_is_one_line_without_control_characters() -> None:
    assert str(UserError("two\nlines \x1b[31m")) == r"two lines \x1b[31m"


def test_long_message_keeps_its_beginning_and_end() -> None:
    text = str(UserError(f"first {'x' * 5000} last"))
    assert len(text) <= MAX_MESSAGE_LENGTH + len(" ... ")
    assert text.startswith("first ")
    assert text.endswith(" last")


KEYS = ("data.batch_size", "task.bits", "trainer.max_epochs", "model.net.num_layers", "model.net.d_model", "split.seed")


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        *((name, KEYS, "model.net.num_layers") for name in ("layers", "n_layers", "depth", "model.layers")),
        *((name, KEYS, "trainer.max_epochs") for name in ("epochs", "max_epoch", "trainer.epochs")),
        *(("hidden_size", KEYS, "model.net.d_model"), ("batch", KEYS, "data.batch_size"), ("optimizer", KEYS, "")),
        ("patch", ("dose", "patching"), "patching"),
        ("cosine", ("none", "warmup_cosine"), "warmup_cosine"),
        ("add-nanogtp", ("mul-nanogpt", "add-transformer", "add-nanogpt"), "add-nanogpt"),
        ("dec.3.mlp.pots", ("enc.3", "dec.3", "dec.1.mlp.post", "dec.3.mlp.post"), "dec.3.mlp.post"),
        ("dec.7", ("dec.1", "dec.2"), ""),
        ("anything", (), ""),
    ],
)
def test_misspelt_part_of_a_name_or_another_word_finds_the_name(name, known, meant):
    assert nearest(name, known) == meant


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """The home folder, in which ``runs`` are trained networks; the current folder is empty."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    run = list_pretrained()["add-nanogpt"][0]
    (tmp_path / "home" / "runs").mkdir()
    (tmp_path / "home" / "runs" / run.name).symlink_to(run.resolve())
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


def test_home_is_expanded_at_the_start_of_a_path_only(home) -> None:
    for text in ("~", "~/x", "~/a/~", "x", "a/~/b", "~/runs/*"):
        expected = Path(text.replace("~", str(home), 1) if text[0] == "~" else text)
        assert user_path(text) == user_path(Path(text)) == user_path(user_path(text)) == expected
    for text in ("./~x", ".//~x"):
        assert user_path(text) == user_path(user_path(text)) == Path.cwd() / "~x"
    assert user_path(f"~{os.environ.get('USER', 'root')}/x").is_absolute()
    for text in ("~nobody-such/x", ""):
        with pytest.raises(UserError, match=r"^out=.+: expected a path; ~ and ~USER are home folders"):
            user_path(text, "out")


@pytest.mark.slow
def test_home_is_expanded_wherever_a_path_comes_in(home, monkeypatch, capsys) -> None:
    (path,) = (home / "runs").iterdir()
    run = f"~/runs/{path.name}"
    (tensors,) = path.glob("weights/seed=0.*")
    model = ae.load_run(run)
    assert ae.load_run(Path(run)).name == ae.load_seeds(run)[0].name == path.name
    assert ae.load_pretrained("add-nanogpt", folder=Path("~/runs")).name == path.name
    assert len(ae.load_table("~/runs")) == len(ae.load_table(["~/runs/*"])) == len(ae.load_table(Path(run)))
    assert require_runs("~/runs/*") == require_runs(run) == [path]
    load_weights(f"{run}/weights/{tensors.name}", model.task, model.provenance.job.network)
    ae.save_pretrained(model, "~/saved")
    assert ae.load_pretrained("~/saved").predict([1], [2]) == 3
    ae.probe("dataset", task=ae.Add(bits=2)).save(Path("~/probed"))
    train, probe = ae.compose("train", ["runs_dir='~/new'"]), ae.compose("probe", ["probe=errors", "out='~/o'"])
    assert (train.run.path.parent, probe.out) == (home / "new", home / "o")
    monkeypatch.setattr("sys.argv", ["arith-runs", "~/runs", "--by", "task", "--plot", "~/means.png"])
    list_runs()
    report(["~/runs", "--out", "~/report"])
    assert {path.name for path in home.iterdir()} == {"runs", "saved", "probed", "means.png", "report"}
    assert not [*Path.cwd().iterdir()]
    for refused in (["~nobody-such"], ["--out", "~nobody-such/x"]):
        with pytest.raises(SystemExit, match="1"):
            report(refused)
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("", "ValueError"),
        ("a\nb", "ValueError: a"),
        ("raised:\nOSError: full\n", "ValueError: raised: OSError: full"),
        (
            "C++ compile error\n\nCommand:\ng++ a b\n\ng++: fatal error: no b",
            "ValueError: C++ compile error g++: fatal error: no b",
        ),
    ],
)
def test_first_line_names_the_cause(message, line):
    assert first_line(ValueError(message)) == line
