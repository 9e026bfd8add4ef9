"""Additions to ``mkdocs.yml``: notebooks as pages, and the pages and figures of ``paper/``.

`Doctests` makes examples in docstrings code blocks: Markdown takes ``>>>`` for three nested quotations.
"""

import base64
import json
import os
import re
import shutil
import subprocess
from inspect import Parameter, Signature, getdoc, isclass, isfunction, signature
from pathlib import Path
from pydoc import locate
from typing import Any
from urllib.parse import unquote

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = [  # of docs/; on the site under the same path
    "SECURITY.md",
    "benchmarks/README.md",
    "paper/article.md",
    "paper/preregistrations/*.md",
    "paper/found/*.md",
    "paper/results/*.png",
    "paper/results/verdict-rules.md",
    "paper/results/claims.md",
]

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            text = re.sub(r" *# doctest: .*", "", obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", text)


def on_files(files: Files, config: Any) -> Files:
    """Add figures, pages and notebooks from their folders, where the README and GitHub find them, too."""
    for path in sorted(path for pattern in OUTSIDE for path in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        files.append(File(name, str(ROOT), config["site_dir"], config["use_directory_urls"]))
    files.append(File.generated(config, "explorer.html", content=explorer()))
    files.append(File.generated(config, "find.html", content=find()))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, pictures = notebook_page(path)
        files.append(File.generated(config, f"{path.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, name, content=picture))
    return files


def explorer() -> str:
    """The page in which networks compute: both trained on addition, the authors' if given, and two written by hand."""
    from arith_erd.catalog.loading import load_handcoded, load_pretrained, load_weights
    from arith_erd.explorer import export_network, write_page
    from arith_erd.paper.explorer_sentences import SECTIONS, finding_sentences
    from arith_erd.tasks import Add

    handcoded = [load_handcoded(name, task=Add()) for name in ("erd", "prefix_carry")]
    trained = [load_pretrained("add-transformer"), load_pretrained("add-nanogpt")]
    authors = [load_weights(path, Add()) for path in filter(None, [os.environ.get("AUTHORS")])]
    networks = [
        export_network(model) | {"found": finding_sentences(model)} for model in (*trained, *authors, *handcoded)
    ]
    return write_page(networks, "./", SECTIONS)


def find() -> str:
    """The page that hides a network and asks for its algorithm."""
    from arith_erd.explorer.find import KINDS, find_page
    from arith_erd.paper.explorer_sentences import methods_sentence

    return find_page(docs="./", notes={name: methods_sentence(name) for name in KINDS})


def notebook_page(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown: its text, its code in blocks, and below each what it printed and drew when last executed.

    Returns:
        The page, and its pictures by file name.
    """
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = re.sub(r"!\[([^]]*)\]\(https:[^)]*\)", r"\1", "".join(cell["source"]))  # no requests to other servers
        source = source.replace("](../docs/", "](")  # on the site it is in the top folder
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream":
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            elif "image/png" in output.get("data", {}):
                name = f"{notebook.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(output["data"]["image/png"]))
                shown = re.search(r"^#+ (.*)", "\n".join(parts[::-1]), re.MULTILINE)
                parts.append(f"![{shown[1] if shown else name}]({name})")
    return "\n\n".join(parts) + "\n", pictures


def probe_sections() -> str:
    """A section for each probe: the columns of its rows, from its class, and its options, from its YAML file."""
    hidden = ("show_root_heading", "show_bases", "members", "show_docstring_parameters")
    options = "\n".join(f"      {name}: false" for name in hidden)
    sections = []
    for path in sorted((ROOT / "conf" / "probe").glob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        (target,) = [line for line in lines if line.startswith("_target_: ")]
        block = "\n".join(lines[lines.index(target) + 1 :]) or "# no options"
        name = target.removeprefix("_target_: ").replace("arith_erd.paper.", "paper.")  # its folder
        documented = f"::: {name}\n    options:\n{options}"
        sections.append(f"## {path.stem}\n\n{documented}\n\n```yaml\n{block}\n```\n")
    return "\n".join(sections)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add probes from their YAML files, and change links: on the site, other folders are inside of ``docs/``."""
    page.meta["summary"] = first_sentence(markdown)
    if page.file.src_dir == str(ROOT):
        return markdown.replace("../docs/", "../")
    markdown = markdown.replace("<!-- probes -->", probe_sections())
    markdown = re.sub(r"\.\./notebooks/(\w+)\.ipynb", r"\1.md", markdown)
    return re.sub(r"\.\./(paper/|benchmarks/|SECURITY\.md)", r"\1", markdown)


def first_sentence(markdown: str) -> str:
    """The first sentence of a page, without links and emphasis. Headings, badges and code have no sentences."""
    for block in re.findall(r"^(?!```)[\w`*\[](?:.+\n)+", markdown, re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)|\*", r"\1", " ".join(block.split()))
        if sentence := re.match(r".{20,}?[.?!](?=\s|$)", text):
            return sentence[0]
    raise PluginError(f"no sentence for llms.txt in {markdown[:80]!r}")


def on_page_content(html: str, page: Any, config: Any, **_: Any) -> str:
    """Write the page as Markdown too, for ``llms.txt``. It keeps its path, so its links to other pages work."""
    page.markdown = re.sub(r"^::: (\S+)(?:\n    .*)*", documentation, page.markdown, flags=re.MULTILINE)
    file = Path(config["site_dir"]) / page.file.src_uri
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page.markdown, encoding="utf-8")
    return html


def documentation(directive: re.Match[str]) -> str:
    """The text that mkdocstrings makes of a directive: arguments and docstring, for a class also of its methods."""
    name, thing = directive[1], locate(directive[1])
    named = {name: thing}
    if isclass(thing) and "members: false" not in directive[0]:
        methods = {key: x for key, x in vars(thing).items() if isfunction(x) and not key.startswith("_")}
        named |= {f"{name}.{key}": x for key, x in methods.items()}
    return "\n\n".join(f"### {name}{arguments(x)}\n\n```text\n{getdoc(x)}\n```" for name, x in named.items())


def arguments(function: Any) -> Signature:
    """The signature without types, which pydantic makes long."""
    whole = signature(function)
    bare = [argument.replace(annotation=Parameter.empty) for argument in whole.parameters.values()]
    return whole.replace(parameters=bare, return_annotation=Signature.empty)


def on_post_build(config: Any) -> None:
    """Refuse links that lead nowhere: mkdocs does not see those that leave ``docs/``. Then make the article's PDF."""
    site = Path(config["site_dir"])
    for page in site.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="(?!\w+:|/)([^"#?]+)', page.read_text(encoding="utf-8")):
            if page.name not in ("explorer.html", "find.html") and not (page.parent / unquote(link)).exists():
                raise PluginError(f"{page.relative_to(site)}: its link to {link} leads nowhere")
    make_article(site)


def make_article(site: Path) -> None:
    """The article as a PDF, ``paper/article.pdf``, where pandoc and an engine for it are installed."""
    if not shutil.which("pandoc"):
        return
    source = ROOT / "paper" / "article.md"
    target = site / "paper" / "article.pdf"
    made = subprocess.run(["pandoc", source.name, "-o", target], cwd=source.parent, capture_output=True, text=True)
    if made.returncode:
        print(f"paper/article.pdf was not made: {made.stderr.strip().splitlines()[-1:]}")
