"""The wheel's one step that pyproject.toml cannot express: ``conf/`` goes into it as ``arith_erd/conf/``."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConf(build_py):
    """Copies the configurations beside the modules, where `arith_erd.config.compose.CONF` finds them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # an editable install reads conf/ where it is
            target = Path(self.build_lib) / "arith_erd" / "conf"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree("conf", target)


setup(cmdclass={"build_py": BuildWithConf})
