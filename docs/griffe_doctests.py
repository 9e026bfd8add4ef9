"""Examples in docstrings as code blocks: Markdown takes ``>>>`` for three nested quotations."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            text = re.sub(r" *# doctest: .*", "", obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", text)
