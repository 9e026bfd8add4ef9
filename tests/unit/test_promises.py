"""What `docs/promises.md` promises."""

import re
from difflib import unified_diff
from pathlib import Path

import pytest

import arith_erd as ae
from tests.public_names import FILE, text


@pytest.mark.filterwarnings("ignore:eraser:UserWarning")
def test_public_names_are_those_of_the_list():
    """A line with ``-`` breaks a promise; one with ``+`` is new: ``python -m tests.public_names`` writes the list."""
    changed = unified_diff(FILE.read_text(encoding="utf-8").splitlines(), text().splitlines(), n=0, lineterm="")
    assert "\n".join(changed) == ""


def test_an_old_name_works_and_warns_of_the_new_one():
    with pytest.warns(FutureWarning, match="load_references is load_handcoded since 1.1"):
        assert ae.load_references("erd", 3)[0].name == ae.load_handcoded("erd", 3).name == "handcoded-erd"
    task = ae.Add(bits=3)
    with (
        pytest.warns(FutureWarning, match="load_authors_weights is load_weights since 1.1"),
        pytest.raises(ae.UserError, match=r"^path=none: "),
    ):
        ae.load_authors_weights("none", task)
    for sample, by_old_name in ((task.sample, {"count": 4}), (task.examples().sample, {"count": 4, "seed": 1})):
        with pytest.warns(FutureWarning, match=r"sample: count= is n= since 1\.1"):
            assert len(sample(**by_old_name)) == 4
        with pytest.raises(TypeError, match="count"):
            sample(n=4, count=4)
    with (
        pytest.warns(FutureWarning, match="certificate: user_model= is causal_model= since"),
        pytest.raises(ae.UserError, match=r"^certificate: causal_model: received one for Add\(bits=3\)"),
    ):
        ae.certificate(ae.load_handcoded("erd"), user_model=ae.CausalModel(task))


@pytest.mark.parametrize(
    ("file", "written"),
    [
        ("CITATION.cff", "\nversion: {}\n"),
        ("Dockerfile", 'image.version="{}"'),
        ("deploy/k8s/sweep.yaml", "arith-erd:{} "),
        ("docs/how-to/kubernetes.md", "arith-erd:{} "),
    ],
)
def test_the_last_release_is_the_same_everywhere(root: Path, file: str, written: str) -> None:
    released = re.search(r"^## (\d\S*) \(", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert released
    assert written.format(released[1]) in (root / file).read_text(encoding="utf-8")


def test_only_a_release_has_the_version_of_one(root: Path) -> None:
    """With changes under "Unreleased" the version is that of a development version."""
    heading = (root / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ", 2)[1].split()[0]
    assert ".dev" in ae.__version__ if heading == "Unreleased" else ae.__version__ == heading
