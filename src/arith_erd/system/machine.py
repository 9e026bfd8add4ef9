"""The machine: device, versions and commit of a measurement; fast settings of threads and matrix products."""

import contextlib
import os
import platform
import re
import subprocess
import sys
from functools import partial
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..bundled import ROOT
from ..errors import counted

if TYPE_CHECKING:
    import torch

SPIN_COUNT = "30000"
"""How many turns a waiting thread spins, about 0.1 ms. If other programs compute, GNU OpenMP's default of 300,000 makes
a step several times slower. Without spinning a step takes twice as long (``benchmarks/README.md``)."""
SPIN_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")  # if the user sets one, we set none


def cpu_name() -> str:
    """The processor's name on Linux, such as ``AMD EPYC 9V74 80-Core Processor``; elsewhere its architecture."""
    with contextlib.suppress(OSError):
        match = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
        if match:
            return match[1].strip()
    return f"{platform.machine()} CPU"


def device_name(device: "torch.device") -> str:
    """The name of a device: ``NVIDIA H200`` or ``AMD EPYC, 2 threads``."""
    import torch  # not at the top: reports and benchmarks need names and versions without torch

    if device.type == "cpu":
        return f"{cpu_name()}, {counted(torch.get_num_threads(), 'thread')}"
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} {device.type}"


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that a process here can use, as CUDA_VISIBLE_DEVICES names them. CUDA is not initialised."""
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:  # CUDA stops at the first wrong one
        names = (name.strip() for name in chosen.split(","))
        return list(takewhile(partial(re.fullmatch, r"\d+|(GPU|MIG)-.+"), names))
    listed = ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60).stdout
    # A line for each GPU. Below a divided GPU there is a line for each part, and processes use the parts.
    return re.findall(r"UUID: (GPU-[^)]+(?=\)(?!\s+MIG))|MIG-[^)]+)", listed)


def git_commit(checkout: Path = ROOT) -> str | None:
    """The commit, such as ``4575d76``, with ``-dirty`` if code has changed since; None if there is no ``.git``."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(checkout), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    with contextlib.suppress(OSError):
        if (checkout / ".git").exists() and (revision := git("describe", "--always", "--exclude=*")):
            # New files count only in ``src`` and ``conf``, since others may be runs.
            status = partial(git, "status", "--porcelain")
            changed = status("-uno") or status("-unormal", "--", ":/src", ":/conf")
            return f"{revision}-dirty" if changed else revision
    return None


def versions() -> dict[str, str | None]:
    """The versions that can change numbers: of this package, Python, torch and Lightning."""
    packages = {name: version(name) for name in ("torch", "lightning")}
    return {"arith_erd": __version__, "commit": git_commit(), "python": platform.python_version(), **packages}


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes that this process may use: the machine's memory, or the limit of its control group or of a parent group.

    On Windows the number is unknown.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else [sys.maxsize]
    with contextlib.suppress(OSError):  # not Linux
        groups = re.findall(r"^\d+:(memory)?:/(.*)$", (root / "proc/self/cgroup").read_text(), re.MULTILINE)
        for name, group in groups:  # cgroup v1 names its memory group "memory", v2 has a single group without a name
            file = "memory.limit_in_bytes" if name else "memory.max"
            for folder in (Path(group), *Path(group).parents):  # a container may see only the last one, as its root
                with contextlib.suppress(OSError, ValueError):  # "max" means no limit
                    limits.append(int((root / "sys/fs/cgroup" / name / folder / file).read_text()))
    return min(limits)


def configure_threads() -> None:
    """Set the number of threads, from affinity and the container's quota, and their spinning. Call it before torch."""
    from joblib import cpu_count  # not at the top: only accepted jobs need it

    usable = int(cpu_count())
    if usable < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(usable))
    if not any(name in os.environ for name in SPIN_VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT


def configure_matmul() -> None:
    """Allow TF32 on CUDA, and use oneDNN for matrix products on an AMD processor, if it keeps all digits.

    MKL has half the speed there (`benchmarks/README.md`). torch uses oneDNN only with the precision "medium" (TF32 on
    CUDA, torch 2.13). oneDNN may then round products to bf16, which we test on one product.
    """
    import torch

    # Use only this setter: after a mix of setters torch raises when Lightning asks for the precision on a GPU.
    torch.set_float32_matmul_precision("high")
    if "AMD" not in cpu_name() or not torch.backends.mkldnn.is_available():
        return
    torch.set_float32_matmul_precision("medium")
    exact = torch.full((256, 256), 1 + 2**-12, dtype=torch.float32)
    if not torch.equal(exact @ torch.eye(256, dtype=torch.float32), exact):
        torch.set_float32_matmul_precision("high")
