"""The benchmarks run at toy sizes. Whether their numbers are right is not tested."""

import json
import runpy
import sys
from pathlib import Path

import lightning as L
import pandas as pd
import pytest

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.training.module import LitPack
from tests.tiny import NETWORK


@pytest.fixture
def harness(root: Path, monkeypatch: pytest.MonkeyPatch):
    """`benchmarks/epoch.py` as a module whose measurements need no process of their own."""
    monkeypatch.syspath_prepend(root / "benchmarks")
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")  # to be restored
    import epoch

    monkeypatch.setattr(epoch, "in_fresh_process", lambda target, /, **arguments: epoch.call(target, arguments))
    return epoch


def test_every_measurement_is_printed_and_saved(harness, monkeypatch, tmp_path, capsys):
    out = tmp_path / "figures" / "out.json"
    options = ("--repeats=1", "--packs=1,2", "--steps=3", "--threads=1", "--profile", f"--out={out}")
    monkeypatch.setattr(sys, "argv", ["epoch.py", *options, *NETWORK, "data.batch_size=16", "trainer.accelerator=cpu"])
    harness.main()
    result = json.loads(out.read_text())
    (epoch,) = result["epoch"]["ours"][0]["epochs"]
    assert epoch["total"] == pytest.approx(epoch["training"] + epoch["evaluation"] + epoch["rest"])
    assert [pack["replicas"] for pack in result["packs"]] == [1, 2]
    for pack in result["packs"]:
        assert pack["steps"] == 3
        for loop in ("bare", "lightning"):
            assert pack["seconds_per_step"][loop][0] > pack["floor"] > 0
    assert any(row["operator"].endswith("mm") for row in result["profile"])
    printed = capsys.readouterr().out
    assert "one epoch: task=add model=transformer, 1 replica(s)" in printed
    assert "times the floor" in printed


def test_warm_up_covers_every_batch_size_of_the_timed_epoch(harness, monkeypatch):
    """A compiled pack would compile in it."""
    import ours

    fits, fit, step = [], L.Trainer.fit, LitPack.validation_step

    def fitting(self, *arguments, **options):
        fits.append(set())
        return fit(self, *arguments, **options)

    def validating(self, batch, *indices):
        fits[-1].add(len(batch[0]))
        return step(self, batch, *indices)

    monkeypatch.setattr(L.Trainer, "fit", fitting)
    monkeypatch.setattr(LitPack, "validation_step", validating)
    monkeypatch.setattr(ours, "WARM_UP", 8)
    for module in ("ours", "arith_erd.training.data"):
        monkeypatch.setattr(f"{module}.evaluation_batch_size", lambda device, replicas: 16)
    ours.epochs(compose("train", [*NETWORK, "trainer.accelerator=cpu", "data.batch_size=16"]), 1, 1)
    assert fits == [{16}, {16}]


def correctness(root, monkeypatch, capsys) -> tuple[int, list[str]]:
    """Exit status of `benchmarks/correctness.py` without a GPU, and its line for each check."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["correctness.py", *NETWORK])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(root / "benchmarks" / "correctness.py"), run_name="__main__")
    return int(end.value.code or 0), capsys.readouterr().out.splitlines()[2:]


def test_checks_pass_on_a_machine_without_a_gpu(root, monkeypatch, capsys):
    status, lines = correctness(root, monkeypatch, capsys)
    assert status == 0
    assert [" ok " in line for line in lines] == [True] * 8 + [False] * 2
    assert all("bf16-mixed" in line and " for the record " in line for line in lines[8:])


def test_check_that_raises_counts_as_failed_and_others_continue(root, monkeypatch, capsys):
    def fails(*_):
        raise RuntimeError("could not load [/usr/lib/libcuda.so.1]\nfor this device")

    monkeypatch.setattr("arith_erd.models.decoding.greedy", fails)
    status, lines = correctness(root, monkeypatch, capsys)
    assert status == 1
    failed = [line for line in lines if " FAILED " in line]
    assert len(failed) == 2
    assert all(line.endswith("RuntimeError: could not load [/usr/lib/libcuda.so.1]") for line in failed)
    assert len(lines) == 10


def test_training_is_measured_once_and_summed_up_by_seed(root, monkeypatch, whole, tmp_path):
    """Nothing is causal in networks of four epochs, and nothing is measured twice."""
    out = tmp_path / "training.csv"
    script = str(root / "benchmarks" / "mechanism_training.py")
    small = ["--epochs", "3,4", "--pairs", "16", "--moved", "16"]
    monkeypatch.setattr(sys, "argv", [script, str(out), str(whole.path), *small])
    runpy.run_path(script, run_name="__main__")
    measured = tmp_path / "training-epochs.csv"
    before = measured.read_text()
    runpy.run_path(script, run_name="__main__")
    assert measured.read_text() == before
    assert list(zip(*pd.read_csv(measured)[["seed", "epoch"]].to_numpy().T, strict=True)) == [
        (0, 3),
        (1, 3),
        (0, 4),
        (1, 4),
    ]
    rows = pd.read_csv(out)
    assert rows["verdict"].tolist() == ["none", "none"]
    assert rows["reaches_95"].isna().all()


@pytest.fixture
def peer(harness):
    """`benchmarks/peer_jax.py` as a module."""
    import peer_jax

    return peer_jax


def test_pack_in_jax_computes_what_ours_does(peer):
    """Logits without dropout, and weights after two steps with it; other masks would show in these."""
    pytest.importorskip("jax")
    import sides

    job = peer.job_of("smoke", 2)
    found = sides.differences(job)
    assert found["logits"] <= peer.LOGITS
    assert found["weights"] <= peer.WEIGHTS


def test_comparison_with_jax_continues_only_what_measured_the_same(peer, tmp_path):
    out, same = tmp_path / "new" / "jax.csv", {"cpu": "one", "threads": 2}
    measured = {"cache": "cold", "ms": 80.0, "cpu_ms": 150, "first_s": 9, "first_cpu_s": 12, "peak_mib": 700}
    for side, ms in (("ours", 80.0), ("jax", 100.0)):
        peer.append(out, {"side": side, "replicas": 1, "repeat": 0, **measured, "ms": ms, **same})
    rows = peer.read(out, same)
    assert [(row["side"], row["ms"]) for row in rows] == [("ours", "80.0"), ("jax", "100.0")]
    assert peer.table(rows, 1).caption == "ahead: ours, 1.25 times as quick"
    with pytest.raises(UserError, match=r"has threads=2; expected 1, or a new file"):
        peer.read(out, same | {"threads": 1})
    assert peer.read(tmp_path / "none.csv", same) == []


# Tables that scripts continue


def test_continued_table_has_one_header_and_no_group_in_part(root: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(root / "benchmarks")
    from continued import ContinuedTable

    path = tmp_path / "table.csv"

    def interrupted():
        yield ("b", 1, 0.5)
        raise KeyboardInterrupt

    table = ContinuedTable(path, ("network", "seed", "right"), ("network", "seed"))
    assert table.done == set()
    table.add([("a", 0, 1.0), ("a", 1, 0.25)])
    with pytest.raises(KeyboardInterrupt):
        table.add(interrupted())
    again = ContinuedTable(path, ("network", "seed", "right"), ("network", "seed"))
    assert again.done == {("a", "0"), ("a", "1")}
    again.add([("b", 1, 0.5)])
    assert path.read_text() == "network,seed,right\na,0,1.0\na,1,0.25\nb,1,0.5\n"
