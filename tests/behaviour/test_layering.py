"""Imports go to lower layers only, and slow libraries are loaded only by the packages that need them.

``test_cli.py`` tests that `--help` and configuration errors load neither torch nor Lightning.
"""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = "arith_erd"

# The lowest layer first. A package imports from lower layers and from itself, never from others of its layer.
LAYERS = (
    {"errors", "digits", "stats", "bundled"},
    {"checks"},
    {"tasks", "seeds", "system", "paper"},
    {"plots", "splits", "models"},
    {"interp", "runs"},
    {"config", "explorer"},
    {"launch", "loggers", "catalog", "mechanism", "losses"},
    {"training", "probes"},
    {"report", "first_answer"},
    {"__init__", "__main__"},  # the public names, and the entry points of the commands
)
LAYER = {package: number for number, packages in enumerate(LAYERS) for package in packages}
WITH_TORCH = {"models", "losses", "interp", "explorer", "catalog", "mechanism", "training", "probes"}

# The packages that may import a slow library, or one with conventions of its own.
ONLY_IN = {
    "lightning": {"training"},
    "hydra": {"config", "launch"},
    "omegaconf": {"config", "launch"},
    "ray": {"launch"},
    "wandb": {"loggers"},
}


SOURCE = Path(__file__).parents[2] / "src" / PACKAGE
MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file names in an import, at the top or inside a function, in full."""
    folder = [PACKAGE, *path.relative_to(SOURCE).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from . import x` names the module x; `from .a import b` names a, whatever b is.
            siblings = {f"{module}.{alias.name}" for alias in node.names}
            found |= siblings if node.level and not node.module else {module}
    return found


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def users_of(library: str) -> list[Path]:
    return [path for path in MODULES if library in {name.split(".")[0] for name in imports(path)}]


def test_imports_go_to_lower_layers_only():
    assert {package_of(path) for path in MODULES} <= set(LAYER)
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in MODULES
        for name in imports(path)
        if name.startswith(f"{PACKAGE}.")
        and (other := name.split(".")[1]) != package_of(path)
        and LAYER.get(other, 0) >= LAYER[package_of(path)]
    ]
    assert not wrong


def test_no_module_imports_itself_by_way_of_others():
    """Imports for type checkers count. A package's own names, as of ``tasks``, stand for its ``__init__``."""
    modules = {".".join([PACKAGE, *path.relative_to(SOURCE).with_suffix("").parts]): path for path in MODULES}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    modules.pop(PACKAGE)  # the public names, lazy
    graph = {name: {other for other in imports(path) if other in modules} for name, path in modules.items()}
    TopologicalSorter(graph).prepare()  # or CycleError


@pytest.mark.parametrize("library", ONLY_IN)
def test_library_is_imported_only_where_allowed(library):
    assert {package_of(path) for path in users_of(library)} <= ONLY_IN[library]


@pytest.mark.slow
def test_packages_without_torch_load_none(cli):
    """They load neither Lightning nor W&B; only `config`, `launch` and the report, which reads `config`, load Hydra."""
    names = [
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for path in MODULES
        if package_of(path) not in WITH_TORCH and path not in users_of("wandb")
    ]
    with_hydra = tuple(f"{PACKAGE}.{package}" for package in (*ONLY_IN["hydra"], "report"))
    names.sort(key=lambda name: name.startswith(with_hydra))  # the others first
    code = f"""
import importlib, sys
for name in {names}:
    importlib.import_module(name)
    slow = {{"torch", "lightning", "pytorch_lightning", "torchmetrics", "wandb"}}
    if not name.startswith({with_hydra}):
        slow |= {{"hydra", "omegaconf"}}
    assert not slow & set(sys.modules), f"{{name}} loads {{slow & set(sys.modules)}}"
"""
    result = cli("-c", code)
    assert result.returncode == 0, result.stderr
