"""What a run may use of a machine, and what its summary says about the code that trained."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from lightning.fabric.accelerators import cuda

from arith_erd.system import machine
from arith_erd.system.machine import (
    SPIN_COUNT,
    SPIN_VARIABLES,
    configure_matmul,
    configure_threads,
    git_commit,
    memory_limit,
    visible_gpus,
)


def test_runs_in_a_repository_are_no_change_of_its_code(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", tmp_path, *own, *words], check=True, capture_output=True)

    def write(name: str, text: str = "") -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    git("init")
    write("src/package/code.py")
    git("add", ".")
    git("commit", "-m", "first")
    assert (clean := git_commit(tmp_path))
    write("my_runs/add-seed0/config.yaml")
    assert git_commit(tmp_path) == clean
    write("conf/task/new.yaml")
    assert git_commit(tmp_path) == f"{clean}-dirty"
    (tmp_path / "conf" / "task" / "new.yaml").unlink()
    write("src/package/code.py", "changed = True")
    assert git_commit(tmp_path) == f"{clean}-dirty"
    assert git_commit(tmp_path / "src") is None  # a package that is installed inside the repository


STEP = "slurm/job_7/step_0"


@pytest.mark.parametrize(
    ("group", "limits", "limit"),
    [
        ("0::/", {}, 2**40),  # the machine's
        ("0::/", {"memory.max": "4096"}, 4096),  # a container
        (f"0::/{STEP}", {f"{STEP}/memory.max": "max", "slurm/job_7/memory.max": "512", "memory.max": "4096"}, 512),
        (f"5:devices:/\n4:memory:/{STEP}\n0::/", {f"memory/{STEP}/memory.limit_in_bytes": "256"}, 256),
        ("4:memory:/docker/5e1f", {"memory/memory.limit_in_bytes": "1024"}, 1024),  # it sees its own group as the root
        (None, {}, 2**40),  # not Linux
    ],
)
def test_memory_limit_of_a_container_and_of_a_slurm_step_counts(tmp_path, monkeypatch, group, limits, limit):
    monkeypatch.setattr("os.sysconf", lambda name: 2**20)
    files = {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    for name, text in (files | ({"proc/self/cgroup": group} if group else {})).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert memory_limit(tmp_path) == limit


SPIN = {"GOMP_SPINCOUNT": SPIN_COUNT}
OWN = {"KMP_BLOCKTIME": "7", "OMP_NUM_THREADS": "5"}


@pytest.mark.parametrize(
    ("usable", "own", "expected"), [(8, {}, SPIN), (3, {}, SPIN | {"OMP_NUM_THREADS": "3"}), (2, OWN, OWN)]
)
def test_there_are_as_many_threads_as_usable_processors_or_as_the_user_says(monkeypatch, usable, own, expected):
    """The machine has eight processors."""
    variables = (*SPIN_VARIABLES, "OMP_NUM_THREADS")
    for name in variables:
        monkeypatch.setenv(name, own.get(name, ""))  # so that it is as before after the test
        if name not in own:
            monkeypatch.delenv(name)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("joblib.cpu_count", lambda: usable)
    configure_threads()
    assert {name: os.environ[name] for name in variables if name in os.environ} == expected


@pytest.fixture
def matmul_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("cpu", "exact", "quick"), [("AMD EPYC", True, 1), ("AMD EPYC", False, 0), ("Intel", True, 0)])
def test_training_uses_fast_products_on_amd_processors_that_keep_all_digits(
    matmul_precision: None, monkeypatch: pytest.MonkeyPatch, cpu: str, exact: bool, quick: bool
) -> None:
    monkeypatch.setattr(machine, "cpu_name", lambda: cpu)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "equal", lambda *_: exact)
        configure_matmul()
    assert (torch.backends.mkldnn.matmul.fp32_precision == "bf16") == quick
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    monkeypatch.setattr(cuda, "_is_ampere_or_later", lambda _: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cuda._check_cuda_matmul_precision(torch.device("cuda"))  # Lightning asks, and torch may refuse to answer


NVIDIA_SMI = """
GPU 0: NVIDIA H100 (UUID: GPU-aa)
GPU 1: NVIDIA H100 (UUID: GPU-bb)
  MIG 3g.40gb     Device  0: (UUID: MIG-cc)
  MIG 3g.40gb     Device  1: (UUID: MIG-dd)
"""


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("0,1", ["0", "1"]),
        (" GPU-aa, MIG-cc/1/0", ["GPU-aa", "MIG-cc/1/0"]),
        ("3,-1,2", ["3"]),
        ("NoDevFiles", []),
        ("", []),
        (None, ["GPU-aa", "MIG-cc", "MIG-dd"]),
    ],
)
def test_visible_gpus_are_those_of_the_variable_or_else_all(variable, expected, monkeypatch, tmp_path):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{NVIDIA_SMI}'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == expected
