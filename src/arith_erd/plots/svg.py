"""Figures as text, for a page that needs no other file."""

import base64
import io

import matplotlib as mpl
from matplotlib.figure import Figure

from .style import plain_text


def svg_of(figure: Figure, name: str) -> str:
    """A figure as SVG, the same text for the same data.

    Args:
        name: of the figure; the ids inside depend on it.
    """
    file = io.StringIO()
    with plain_text(), mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def embedded(svg: str | None) -> str | None:
    """SVG as the address of an image; None without one."""
    return None if svg is None else "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
