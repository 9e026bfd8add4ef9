"""What mkdocs needs beyond ``mkdocs.yml``: figures from ``results/``, and the pages of ``found/`` in the menu."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_config(config: Any) -> Any:
    """List every page of ``found/`` in the menu, the index first."""
    pages = sorted((ROOT / "docs" / "found").glob("*.md"), key=lambda path: (path.stem != "index", path.stem))
    for entry in config["nav"]:
        if "What was found" in entry:
            entry["What was found"] = [*(f"found/{path.name}" for path in pages), "verdicts.md"]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Take the figures along; they stay in ``results/``, where the README and GitHub find them too."""
    for path in sorted((ROOT / "results").glob("*.png")):
        files.append(File(f"results/{path.name}", str(ROOT), config["site_dir"], use_directory_urls=False))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """``../../results/x.png``, which works on GitHub, is one folder nearer on the site."""
    return markdown.replace("](../../results/", "](../results/")
