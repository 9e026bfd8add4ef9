"""The first answer: ``arith`` names the algorithm of a network, and writes what it found where it was started."""

from pathlib import Path

import numpy as np
import pytest

import arith_erd as ae
from arith_erd import UserError, first_answer, load_handcoded
from arith_erd.interp.algorithms import ALGORITHMS
from tests.conftest import Cli


def test_interchanges_tell_hand_written_networks_apart():
    """Each network writes every bit as its own algorithm predicts, and some bits otherwise than each other one."""
    table = first_answer.follow_interchanges(load_handcoded("prefix_carry"))
    assert table.iloc[0].idxmax() == "prefix_carry"
    by_hand = [name.removeprefix(first_answer.HANDCODED_LABEL) for name in table.index[1:]]
    assert by_hand == [name.split(" or ")[0] for name in table]
    controls = table.iloc[1:].to_numpy()
    assert (np.diag(controls) == 1).all()
    assert (controls[~np.eye(len(controls), dtype=bool)] < 0.97).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_answer_names_the_algorithm_of_a_hand_written_network(name: str):
    model, post_hoc = first_answer.load_adder(name), ALGORITHMS[name].post_hoc
    profile = first_answer.measure_profile(model)
    first, *others = first_answer.explain(profile, first_answer.follow_interchanges(model))
    assert first.endswith(f"{name}. That is, it {ALGORITHMS[name].description}.")
    assert any("may fit by design" in line for line in others) == post_hoc
    assert profile.fits_later == ((name,) if post_hoc else ())
    assert profile.summary()[0].startswith("Verdict: none;") == (f": {name} (" in profile.summary()[1]) == post_hoc


def test_command_overwrites_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert first_answer.unused_paths("arith-erd") == (Path("arith-erd.png"), Path("arith-erd.html"))
    Path("arith-erd.html").symlink_to("nowhere")
    assert first_answer.unused_paths("arith-erd") == (Path("arith-erd-2.png"), Path("arith-erd-2.html"))


@pytest.mark.slow
def test_program_answers_in_any_folder(cli: Cli, tmp_path: Path):
    result = cli("-m", "arith_erd", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"arith-add-transformer.png", "arith-add-transformer.html"}
    assert "That is 128, the right answer." in result.stdout
    assert "Its algorithm: like local_remainder." in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_wrong_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/a.txt").touch()
    for name, said in (
        ("runs", "^network=runs: a folder without config.yaml; expected a run directory$"),
        ("runs/nope", "^network=runs/nope: no such folder$"),  # not a name on the Hub
        ("a/b/c", "^network=a/b/c: no such folder$"),
        ("runs/a.txt", "^network=runs/a.txt: a file; expected a run directory$"),
        ("edr", r"^network=edr: expected a run directory, .*; did you mean erd\?$"),
        ("mul-nanogpt", "^network=mul-nanogpt: its task is mul; expected a network that adds two numbers$"),
    ):
        with pytest.raises(UserError, match=said):
            first_answer.load_adder(name)
    task = ae.Add(bits=10)
    large = ae.Hooked(ae.NanoGPT(task.prompt_length, task.answer_length, d_model=16, num_heads=2), task=task)
    monkeypatch.setattr("arith_erd.catalog.loading.load_handcoded", lambda name: large)
    with pytest.raises(UserError, match=r"^task=add: 1,048,576 examples; arith needs"):
        first_answer.load_adder("erd")
