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
"""Number of turns, about 0.1 ms, that a waiting thread spins. GNU OpenMP's own 300,000 slow a step down several times
if other programs compute too. Without any spinning a step takes twice as long: ``benchmarks/README.md``."""
SPIN_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")  # if one is set, threads wait as it says


def cpu_name() -> str:
    """The processor's name on Linux, such as ``AMD EPYC 9V74 80-Core Processor``; elsewhere its architecture."""
    with contextlib.suppress(OSError):
        match = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
        if match:
            return match[1].strip()
    return f"{platform.machine()} CPU"


def device_name(device: "torch.device") -> str:
    """The name of a device: ``NVIDIA H200`` or ``AMD EPYC, 2 threads``."""
    import torch  # not at the top: reports and benchmarks ask for names and versions without loading it

    if device.type == "cpu":
        return f"{cpu_name()}, {counted(torch.get_num_threads(), 'thread')}"
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} {device.type}"


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that a process here can use, as CUDA_VISIBLE_DEVICES names them. CUDA is not initialised."""
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:  # CUDA takes those before the first wrong one
        names = (name.strip() for name in chosen.split(","))
        return list(takewhile(partial(re.fullmatch, r"\d+|(GPU|MIG)-.+"), names))
    listed = ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60).stdout
    # A line for each GPU, and below one that is divided a line for each of its parts, which are used instead.
    return re.findall(r"UUID: (GPU-[^)]+(?=\)(?!\s+MIG))|MIG-[^)]+)", listed)


def git_commit(checkout: Path = ROOT) -> str | None:
    """The commit, as ``4575d76``, with ``-dirty`` if code has changed since; None if the package has no ``.git``."""

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
    """The versions that can change a number: those of this package, Python, torch and Lightning."""
    packages = {name: version(name) for name in ("torch", "lightning")}
    return {"arith_erd": __version__, "commit": git_commit(), "python": platform.python_version(), **packages}


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes that this process may use: the machine's, or the limit of its control group or of one above that.

    Windows does not say.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else [sys.maxsize]
    with contextlib.suppress(OSError):  # not Linux
        groups = re.findall(r"^\d+:(memory)?:/(.*)$", (root / "proc/self/cgroup").read_text(), re.MULTILINE)
        for name, group in groups:  # cgroup v1 names the group of its memory controller, v2 has one without a name
            file = "memory.limit_in_bytes" if name else "memory.max"
            for folder in (Path(group), *Path(group).parents):  # a container may see only the last, as the root
                with contextlib.suppress(OSError, ValueError):  # "max": none
                    limits.append(int((root / "sys/fs/cgroup" / name / folder / file).read_text()))
    return min(limits)


def configure_threads() -> None:
    """Set the number of threads, from affinity and the container's quota, and how long they spin; call before torch."""
    from joblib import cpu_count  # not at the top: only a job that was accepted needs it

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
