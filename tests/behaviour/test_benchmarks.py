"""Benchmarks run at toy sizes."""

import runpy
import sys

import pytest

from tests.tiny import NETWORK


@pytest.mark.slow
def test_checks_pass_on_a_machine_without_a_gpu(root, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["correctness.py", *NETWORK])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(root / "benchmarks" / "correctness.py"), run_name="__main__")
    assert not end.value.code
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [" ok " in line for line in lines] == [True] * 8 + [False] * 2
    assert all("bf16-mixed" in line and " for the record " in line for line in lines[8:])
