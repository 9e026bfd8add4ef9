"""Imports go down only, and what is slow to load is loaded only by what needs it.

That `--help` and configuration errors load neither torch nor Lightning is in ``test_cli.py``.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = "arith_erd"

# From the bottom up: a part imports from the lines above it, and within itself.
LAYERS = (
    {"errors", "rules", "requeue", "slurm", "bits", "intervals", "machine", "__init__"},
    {"seeds", "lock", "files", "preemption"},
    {"tasks", "metrics", "runs", "build"},
    {"models", "splits", "loggers", "report", "packs", "memory"},
    {"compose"},
    {"sweep"},
    {"cli"},
    {"decoding"},
    {"data", "pack", "interp"},
    {"subject", "lit"},
    {"checkpoint", "load"},
    {"callbacks", "probes"},
    {"training"},
    {"probing"},
)
RANKS = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}

# Who may load what is slow, or ties us to somebody else's conventions.
ONLY_IN = {
    "lightning": {"data", "lit", "callbacks", "checkpoint", "training"},
    "hydra": {"compose", "sweep", "slurm", "cli"},
    "omegaconf": {"compose", "sweep", "cli", "slurm"},
    "submitit": {"slurm"},
    "wandb": {"loggers", "report"},
}
WITHOUT_TORCH = (
    "machine",
    "intervals",
    "seeds",
    "tasks",
    "splits",
    "files",
    "runs",
    "packs",
    "report",
    "build",
    "rules",
    "compose",
    "sweep",
    "cli",
)


@pytest.fixture
def source(root) -> Path:
    return root / "src" / PACKAGE


def imports(path: Path, source: Path) -> set[str]:
    """Every module that a file names in an import, at the top or inside a function, in full."""
    package = [PACKAGE, *path.relative_to(source).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from . import x` names the module x; `from .a import b` names a, whatever b is.
            siblings = {f"{module}.{alias.name}" for alias in node.names}
            found |= siblings if node.level and not node.module else {module}
    return found


def part_of(path: Path, source: Path) -> str:
    return path.relative_to(source).with_suffix("").parts[0]


def modules(source: Path) -> list[Path]:
    return sorted(source.rglob("*.py"))


def users_of(library: str, source: Path) -> list[Path]:
    return [path for path in modules(source) if library in {name.split(".")[0] for name in imports(path, source)}]


def test_every_part_has_its_place(source):
    assert {part_of(path, source) for path in modules(source)} <= set(RANKS)


def test_imports_go_down_only(source):
    upward = [
        f"{path.relative_to(source)} imports {name}"
        for path in modules(source)
        for name in imports(path, source)
        if name.startswith(f"{PACKAGE}.")
        and (part := name.split(".")[1]) != part_of(path, source)
        and RANKS.get(part, -1) >= RANKS[part_of(path, source)]
    ]
    assert not upward


def test_reports_are_made_of_run_directories_alone(source):
    names = {name for path in (source / "report").glob("*.py") for name in imports(path, source)}
    used = {name.split(".")[1] for name in names if name.startswith(f"{PACKAGE}.")}
    assert used <= {"report", "runs", "files", "intervals", "seeds", "errors", "__version__"}


def test_runs_stand_beside_bits(source):
    used = {name for name in imports(source / "runs.py", source) if name.startswith(f"{PACKAGE}.")}
    assert used <= {f"{PACKAGE}.errors", f"{PACKAGE}.files", f"{PACKAGE}.seeds"}


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_is_imported_only_where_it_belongs(library, source):
    users = {part_of(path, source) for path in users_of(library, source)}
    assert users <= ONLY_IN[library]


def test_wandb_is_imported_by_the_logger_and_by_a_program_of_its_own(source):
    users = users_of("wandb", source)
    assert set(users) <= {source / "loggers" / "wandb.py", source / "report" / "dashboard.py"}
    targets = {".".join([PACKAGE, *path.relative_to(source).with_suffix("").parts]) for path in users}
    assert not targets & {name for path in modules(source) for name in imports(path, source)}


def test_networks_know_nothing_of_packs_nor_of_lightning(source):
    for path in (source / "models").glob("*.py"):
        assert not {name for name in imports(path, source) if "pack" in name or "lightning" in name or "hydra" in name}


def test_entry_points_are_short(root):
    for name in ("train.py", "probe.py"):
        assert len((root / name).read_text().splitlines()) < 60


# In a fresh process


def test_what_needs_no_torch_loads_none(cli, source):
    """Nor Lightning or W&B; and what makes reports loads no Hydra either."""
    names = [
        ".".join(path.relative_to(source.parent).with_suffix("").parts)
        for part in WITHOUT_TORCH
        for path in modules(source)
        if part_of(path, source) == part and path not in users_of("wandb", source)
    ]
    code = f"""
import importlib, sys
for name in {names}:
    importlib.import_module(name)
    slow = {{"torch", "lightning", "pytorch_lightning", "torchmetrics", "wandb"}}
    if not name.startswith({tuple(f"{PACKAGE}.{part}" for part in ONLY_IN["hydra"])}):
        slow |= {{"hydra", "omegaconf"}}
    assert not slow & set(sys.modules), f"{{name}} loads {{slow & set(sys.modules)}}"
"""
    result = cli("-c", code)
    assert result.returncode == 0, result.stderr
