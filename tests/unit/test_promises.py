"""What `docs/promises.md` promises."""

from difflib import unified_diff

import pytest

from tests.public_names import FILE, text


@pytest.mark.filterwarnings("ignore:eraser:UserWarning")
def test_public_names_are_those_of_the_list():
    """A line with ``-`` breaks a promise; one with ``+`` is new: ``python -m tests.public_names`` writes the list."""
    changed = unified_diff(FILE.read_text(encoding="utf-8").splitlines(), text().splitlines(), n=0, lineterm="")
    assert "\n".join(changed) == ""
