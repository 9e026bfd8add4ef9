"""Documentation works: the pages' worked examples, commands and links, the examples in docstrings, and the notebook."""

import ast
import doctest
import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

import arith_erd
from arith_erd.config.compose import checked_job
from arith_erd.config.hydra_conf import composed, hydra_over_conf

pytestmark = pytest.mark.slow_after(8)

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "AGENTS.md",
    *sorted(path for name in ("docs", "paper") for path in (ROOT / name).rglob("*.md")),
]
# A line with a path, then a code block: (the path, the file's text).
BLOCK = re.compile(r"^`((?:src|conf|my_package|my_conf)/\S+)`:\n\n```\w+\n(.*?)^```", re.M | re.S)
SMALL = ("seed=0", "model.net.d_model=16", "model.net.num_heads=2", "trainer.accelerator=cpu")
TINY = ("task.bits=4", "trainer.max_epochs=1", "trainer.accelerator=cpu")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with every file that the page shows."""
    copy = tmp_path_factory.mktemp("extended")
    for name in ("src", "conf"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("train.py", "probe.py"):
        shutil.copy(ROOT / name, copy)
    for path, text in BLOCK.findall((ROOT / "docs" / "extend.md").read_text()):
        assert not (copy / path).exists(), f"{path} would be overwritten"
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text(text)
    return copy


def run(folder: Path, *command: str) -> str:
    """What a command prints."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_pages_own_task_split_model_recipe_probe_and_figure_work(extended: Path) -> None:
    recipe = ("optimizer=rprop", "scheduler=restarts", "seed=0-1", *TINY)
    run(extended, "train.py", "task=max", "split=band", "split.distance=3", "model=prompt_mlp", *recipe)
    (trained,) = (extended / "runs").glob("max-band-prompt_mlp-*")
    table = run(extended, "probe.py", "figure=layers", f"run={trained}", "probe.num_examples=200")
    assert "operand_values" in table
    assert (trained / "probes" / "decodability-num_examples200" / "figure.png").is_file()
    table = run(extended, "train.py", "-m", "experiment=learning_rate", "scale=smoke", "ablation=two_layers", *SMALL)
    assert len(re.findall(r"^\d +finished", table, re.M)) == 2
    assert len([*(extended / "runs").glob("add-random-nanogpt-two_layers-*")]) == 2


@pytest.mark.slow
def test_own_package_is_used_if_the_command_line_trusts_it(extended: Path) -> None:
    own = ("task=gcd", *SMALL, *TINY, "model.net.num_layers=1", "runs_dir=own")
    run(extended, "-m", "arith_erd.training", "--config-dir", "my_conf", "trust=[my_package]", *own)
    (path,) = (extended / "own").glob("gcd-random-transformer-*")
    search = "hydra.searchpath=[file://my_conf]"
    again = run(extended, "-m", "arith_erd.training", search, "trust=[my_package]", *own)
    assert re.search(r"finished already, skipped(?!.*sources)", again)
    probe = ("-m", "arith_erd.probes", "probe=logit_lens", f"run={path}")
    run(extended, *probe, "trust=[my_package]")
    assert (path / "probes" / "logit_lens" / "figure.png").is_file()


def commands(program: str) -> list[str]:
    """Every command line for a program in the code blocks of the documentation, without the pages' own examples.

    A preregistration stays as it was, with the options of its day.
    """
    found = []
    for page in PAGES:
        if page.name in ("extend.md", "2-fresh.md"):
            continue
        for block in re.findall(r"^ *```\w*\n(.*?)^ *```", page.read_text(), re.S | re.M):
            joined = re.sub(r"\\\n\s*", "", block)
            found += re.findall(rf"^ *python {re.escape(program)} (.*?)\s*(?:#.*)?$", joined, re.M)
    return sorted(set(found))


DOCUMENTED = [(program, line) for program in ("train", "probe") for line in commands(f"{program}.py")]


@pytest.mark.parametrize(("program", "line"), DOCUMENTED)
def test_documented_options_exist(program: str, line: str) -> None:
    """We compose it with the first value of each sweep, and check it as the program does before it trains."""
    words = [word for word in shlex.split(line) if not word.startswith(("-", "hydra/", "hydra."))]
    words = [re.sub(r"^([\w.]+=[^'\[,]+),[^']*$", r"\1", word) for word in words]
    with hydra_over_conf(program, words):
        checked_job(program, composed(program, words), words)


def test_page_for_agents_has_ten_commands_that_print_what_it_shows() -> None:
    text = (ROOT / "AGENTS.md").read_text()
    assert len(text.splitlines()) <= 60
    shell = re.findall(r"^(\w[^#\n]*?)(?: +#.*)?\n  \S", text, re.M)  # what it prints is indented
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    documented = {f"python {program}.py {line}" for program, line in DOCUMENTED}
    assert [line for line in shell if line.split()[0] not in scripts and line not in documented] == []
    parsed = doctest.DocTestParser().get_doctest(re.sub("```.*", "", text), {}, "AGENTS.md", None, None)
    assert doctest.DocTestRunner().run(parsed).failed == 0
    printing = [example for example in parsed.examples if example.want]
    assert len(shell) + len(printing) == 10


def test_list_of_probes_is_complete_and_says_what_each_works_with() -> None:
    page = (ROOT / "docs" / "how-to" / "probes.md").read_text()
    networks, tasks = page.split("Three probes measure the task alone")
    named = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", networks, re.M)
    named += re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", tasks, re.M)
    assert sorted(name for name, _ in named) == sorted(path.stem for path in (ROOT / "conf" / "probe").glob("*.yaml"))


FURTHER = [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")]


@pytest.mark.parametrize("page", [*PAGES, *FURTHER], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """Pages are read in the repository, too; ``make docs`` checks the links of the site."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not page.parent.joinpath(target).exists()] == []


@pytest.mark.slow
def test_site_lists_every_page_for_language_models(tmp_path: Path) -> None:
    """``llms.txt`` has a sentence and a link to the Markdown, whose links work; ``llms-full.txt`` has the text."""
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True, timeout=240)
    listed = re.findall(r"^- \[.+\]\((\S+)\): \S.+[.?!]$", (tmp_path / "llms.txt").read_text(), re.M)
    pages = [re.sub(r"(^|/)(index|README)?\.md$|\.md$", "", name) for name in listed]
    assert sorted(map(tmp_path.joinpath, pages)) == sorted(page.parent for page in tmp_path.rglob("index.html"))
    everything = (tmp_path / "llms-full.txt").read_text()
    for page in map(tmp_path.joinpath, listed):
        text = page.read_text()
        links = re.findall(r"\]\((?!\w+:)([^)#]+)(?:#[^)]*)?\)", text)
        assert [link for link in links if not page.parent.joinpath(link).exists()] == [], page
        assert len(text) > 200
        assert text in everything
    assert "### arith_erd.Hooked.accuracy(self, examples=None" in everything


SOURCE = ROOT / "src" / "arith_erd"
PATHS = [path.relative_to(SOURCE.parent) for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text()]
MODULES = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in PATHS]


NOT_NAMED = {  # by the function's docstring, which means the parameter by another word
    *("certificate.model", "compose.config_name", "fit_das.causal_model", "fit_das.seed"),
    *("flip_signs.seed", "inlp.x", "load_authors_weights.path", "load_authors_weights.task", "load_handcoded.seed"),
    *("load_seeds.path", "load_weights.path", "load_weights.task", "push_to_hub.model", "push_to_hub.private"),
    *("push_to_hub.repo_id", "show.model", "to_hooked_transformer.model"),
}


@pytest.mark.parametrize("name", sorted({*arith_erd.__all__} - {"__version__", "load_references"}))  # an old name
def test_every_public_name_is_documented_and_a_function_names_its_parameters(name):
    documented = getattr(arith_erd, name)
    assert documented.__doc__
    if inspect.isfunction(documented):
        unnamed = {*inspect.signature(documented).parameters} - {*re.findall(r"\w+", documented.__doc__)}
        assert {f"{name}.{parameter}" for parameter in unnamed} <= NOT_NAMED
    assert f"\n::: arith_erd.{name}\n" in (ROOT / "docs" / "api" / "index.md").read_text()


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_print_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example that trains writes to runs/
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


NOTEBOOK = ROOT / "notebooks" / "inside.ipynb"
NUMBER = re.compile(r"\d+\.\d+|\d+(?=%)")
NEAR = 0.05  # numbers differ in their last digits between machines, percentages by a few points


def cells() -> list[tuple[str, str, int]]:
    """Of each code cell: its source, and what it printed and how many pictures it drew when it was last executed."""
    found = []
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            printed = [line for output in cell["outputs"] for line in output.get("text", [])]
            drawn = [output for output in cell["outputs"] if "image/png" in output.get("data", {})]
            found.append(("".join(cell["source"]), "".join(printed), len(drawn)))
    return found


def numbers(text: str) -> list[float]:
    """Fractions as they are, percentages as fractions."""
    return [float(found[0]) / (100 if text[found.end() :].startswith("%") else 1) for found in NUMBER.finditer(text)]


@pytest.mark.slow
def test_notebook_runs_and_prints_what_it_shows(capsys, monkeypatch):
    shown: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(len(plt.get_fignums())) or plt.close("all"))
    monkeypatch.setattr(sys, "displayhook", lambda value: shown.append(isinstance(value, Figure)))
    namespace: dict[str, Any] = {}
    plt.switch_backend("agg")
    for number, (source, printed, drawn) in enumerate(cells(), start=1):
        interactive = ast.Interactive(ast.parse(source).body)  # as in Jupyter, a figure at the end is shown
        exec(compile(interactive, f"code cell {number}", "single"), namespace)
        now = capsys.readouterr().out
        assert NUMBER.sub("#", now) == NUMBER.sub("#", printed), f"code cell {number}"
        assert numbers(now) == pytest.approx(numbers(printed), abs=NEAR), f"code cell {number}"
        assert sum(shown) == drawn, f"code cell {number}"
        shown.clear()
