"""The wheel's one step that pyproject.toml cannot express: files of the repository go into it beside the modules."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

BUNDLED = (  # 8 MB: all trained networks of paper/results/ take 40
    "conf/**/*.yaml",
    "paper/*.yaml",
    "paper/measures.py",
    "paper/figures.py",
    "paper/dashboard.py",
    "paper/probes/*.py",
    "paper/results/methods.csv",
    *(f"paper/results/runs/*-random-{model}-none-seed0-????????/**/*" for model in ("transformer", "nanogpt")),
)


class BuildWithData(build_py):
    """Copies configurations and trained networks to where `arith_erd.bundled` finds them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # an editable install reads them where they are
            package = Path(self.build_lib) / "arith_erd"
            for folder in ("conf", "paper"):
                shutil.rmtree(package / folder, ignore_errors=True)
            for path in (path for pattern in BUNDLED for path in Path().glob(pattern) if path.is_file()):
                (package / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, package / path)


setup(cmdclass={"build_py": BuildWithData})
