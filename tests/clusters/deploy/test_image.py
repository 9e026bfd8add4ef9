"""The image's steps, carried out in a folder: without Docker, and with the wheels of this environment."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny import TINY

UID = 54321  # of nobody here


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="image-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def build(root: Path, folder: Path) -> dict[str, str]:
    """Carry out the Dockerfile of a private checkout, with ``folder`` for ``/``; its ENV."""
    checkout, variables = folder / "checkout", {}
    for program in ("pip", "useradd"):
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    steps = re.sub(r"^#.*\n", "", (root / "Dockerfile").read_text(), flags=re.M).replace("\\\n", "")
    for instruction, words in re.findall(r"^(\w+) (.*)$", steps, re.M):
        if instruction == "WORKDIR":
            work = folder / words.strip("/")
            work.mkdir()
        elif instruction == "COPY":
            *sources, target = words.split()
            for source in sources:
                copy = shutil.copytree if (root / source).is_dir() else shutil.copy
                (checkout / source).parent.mkdir(parents=True, exist_ok=True)
                copy(root / source, checkout / source)
            subprocess.run(["chmod", "-R", "u=rwX,go=", *sources], cwd=checkout, check=True)
            if target.endswith("/"):
                (work / target).mkdir(exist_ok=True)
            subprocess.run(["cp", "--recursive", *sources, str(work / target)], cwd=checkout, check=True, umask=0)
        elif instruction == "RUN":
            here = re.sub(r"(?<= )/(?=app|runs)", f"{folder}/", words)
            environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
            subprocess.run(here, shell=True, cwd=work, env=environment, check=True, umask=0o022)
        elif instruction == "ENV":
            variables = dict(word.split("=") for word in shlex.split(words))
    return variables


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start it as another user")
def test_image_of_a_private_checkout_trains_as_any_user(root: Path, folder: Path) -> None:
    variables = build(root, folder)
    app = folder / "app"
    assert not [path for path in app.rglob("*") if not path.stat().st_mode & 0o004]
    as_user = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", sys.executable)
    if subprocess.run([*as_user, "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip(f"{sys.executable} is its owner's only")
    (*_, program) = re.findall(r'^ENTRYPOINT \["python", "(.+)"\]$', (root / "Dockerfile").read_text(), re.M)
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(app / "src"), "OMP_NUM_THREADS": "1"}
    trained = subprocess.run(
        [*as_user, program, *TINY, "seed=0"], cwd=app, env=variables | kept, capture_output=True, text=True, check=False
    )
    assert trained.returncode == 0, trained.stderr
    (summary,) = (folder / "runs").glob("*/summary.json")
    assert summary.stat().st_uid == UID
