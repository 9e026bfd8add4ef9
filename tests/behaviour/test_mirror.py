"""``tests/unit/`` mirrors the source: every module is tested in the folder of its room, or has a reason here."""

import ast
from pathlib import Path

PACKAGE = "arith_erd"
# Modules, and folders (with a slash at the end), that are tested elsewhere: the test file; or why there is none.
EXCEPTIONS = {
    "config/explain": "tests/behaviour/test_cli.py",
    "interp/epochs": "tests/unit/interp/test_subject.py",
    "interp/tokens": "tests/unit/probes/test_sites.py",
    "launch/help": "tests/behaviour/test_cli.py",
    "models/hook_point": "tests/unit/interp/test_activations.py",
    "models/references/": "tests/unit/models/test_references.py",
    "probe": "tests/behaviour/test_docs.py",
    "train": "tests/behaviour/test_docs.py",
    "plots/": "each picture is drawn by the tests of its probe, or of the report",
    "probes/__main__": "tests/behaviour/test_cli.py",
    "probes/ask": "tests/behaviour/test_cli.py",
    "probes/dataset": "tests/behaviour/test_cli.py",
    "probes/sample": "tests/unit/probes/test_sites.py",
    "report/__main__": "tests/unit/report/test_report.py",
    "runs/replicas": "tests/unit/report/test_collect.py",
    "runs/rows": "tests/unit/runs/test_directory.py",
    "system/boundary": "tests/behaviour/test_cli.py",
    "system/machine": "tests/unit/training/test_train.py",
    "tasks/task": "tests/unit/tasks/test_tasks.py",
    "training/__main__": "tests/behaviour/test_cli.py",
    "training/callbacks": "tests/behaviour/test_resuming.py",
    "training/checkpoint": "tests/behaviour/test_resuming.py",
    "training/finish": "tests/unit/training/test_train.py",
    "training/memory": "tests/unit/runs/test_plan.py",
    "training/resume": "tests/behaviour/test_resuming.py",
}


def excepted(module: str) -> bool:
    return any(module == name or (name.endswith("/") and module.startswith(name)) for name in EXCEPTIONS)


def imported(path: Path) -> set[str]:
    """Modules of the package that a test imports: ``from arith_erd.a import b`` counts for a, a.b and their folders."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name for name in names if name.split(".")[0] == PACKAGE}
    return found


def classes(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}


def test_every_module_is_tested_in_the_folder_of_its_room(root):
    source, unit = root / "src" / PACKAGE, root / "tests" / "unit"
    untested = []
    for path in sorted(source.rglob("*.py")):
        module = path.relative_to(source).with_suffix("")
        if path.name == "__init__.py":
            continue
        folder = unit / module.parent
        if (folder / f"test_{module.name}.py").is_file() or excepted(module.as_posix()):
            continue
        name = ".".join([PACKAGE, *module.parts])
        uses = set().union(*(imported(test) for test in folder.glob("*.py")))
        room = ".".join([PACKAGE, *module.parent.parts])
        if name not in uses and not uses & {f"{room}.{made}" for made in classes(path)}:
            untested.append(module.as_posix())
    assert not untested, "\n".join(untested)


def test_exceptions_name_modules_and_tests_that_exist(root):
    for module, instead in EXCEPTIONS.items():
        path = root / "src" / PACKAGE / module
        assert path.is_dir() if module.endswith("/") else path.with_suffix(".py").is_file(), module
        assert not instead.startswith("tests/") or (root / instead).is_file(), instead
