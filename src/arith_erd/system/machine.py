"""Conditions of a measurement: device, versions, commit."""

import contextlib
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__

if TYPE_CHECKING:
    import torch


def cpu_name() -> str:
    """``AMD EPYC 9V74 80-Core Processor`` on Linux; the architecture on other systems."""
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return f"{platform.machine()} CPU"


def device_name(device: "torch.device") -> str:
    """``NVIDIA H200`` or ``AMD EPYC, 2 threads``."""
    import torch  # not at the top: reports and benchmarks ask for names and versions without loading it

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return f"{platform.machine()} {device.type}"
    threads = torch.get_num_threads()
    return f"{cpu_name()}, {threads} thread{'s' if threads > 1 else ''}"


def commit(checkout: Path = Path(__file__).parent) -> str | None:
    """``4575d76``, with ``-dirty`` where files were changed or added since; None outside a git checkout."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(checkout), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    with contextlib.suppress(OSError):
        if revision := git("describe", "--always", "--exclude=*"):
            return f"{revision}-dirty" if git("status", "--porcelain") else revision
    return None


def versions() -> dict[str, str | None]:
    """Versions of everything that can change a number: this package, Python, torch, Lightning."""
    packages = {name: version(name) for name in ("torch", "lightning")}
    return {"arith_erd": __version__, "commit": commit(), "python": platform.python_version(), **packages}
