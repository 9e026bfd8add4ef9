"""The manifests are valid, and the pods of the Job train together what one sweep would."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from arith_erd.launch.cli import entry_point

Sweep = Callable[..., list[str]]


@pytest.fixture
def manifests(root: Path) -> dict[str, dict]:
    """Every document of deploy/k8s/ by its kind."""
    documents = [yaml.safe_load(path.read_text()) for path in (root / "deploy" / "k8s").glob("*.yaml")]
    return {document["kind"]: document for document in documents}


@pytest.fixture
def container(manifests) -> dict:
    (container,) = manifests["Job"]["spec"]["template"]["spec"]["containers"]
    return container


@pytest.fixture
def sweep(monkeypatch, tmp_path) -> Sweep:
    """``sweep("-m", "seed=0,1", ...)``: the names of the runs that train.py would train, in order."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(*arguments: str) -> list[str]:
        names: list[str] = []
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
        with pytest.raises(SystemExit) as ended:
            entry_point("train")(lambda job: names.append(job.run.name))()
        assert ended.value.code in (0, None), ended.value.code
        return names

    return run


def test_manifests_are_valid_in_every_supported_kubernetes(manifests):
    """1.29 is the first that retries an item by itself (backoffLimitPerIndex) without being configured to."""
    validator = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for manifest in manifests.values():
        for version in ("1.29", validator.latest_version()):
            validator.validate(manifest, version, strict=True)


@pytest.mark.slow
def test_pods_train_what_the_sweep_would(manifests, container, sweep):
    completions = manifests["Job"]["spec"]["completions"]
    *arguments, item = container["args"]
    by_pod = [sweep(*arguments, item.replace("$(JOB_COMPLETION_INDEX)", str(pod))) for pod in range(completions)]
    assert [name for names in by_pod for name in names] == sweep(*arguments)
    assert {len(names) for names in by_pod} == {1}


def test_item_selects_one_job_of_a_sweep(sweep):
    (name,) = sweep("-m", "experiment=fig3", "item=5")
    assert name.startswith("mul-vs_v-transformer-none-seed0-4-")


@pytest.mark.parametrize("item", ["2", "-1", "x", "1.0", "true", "0,1"])
def test_item_that_the_sweep_does_not_have_is_refused(item, sweep, capsys):
    with pytest.raises(AssertionError):
        sweep("-m", "seed=0-4,5-9", f"item={item}")
    assert f"item={item}: expected an integer from 0 to 1, for one of 2 jobs" in capsys.readouterr().err


def test_pods_can_write_their_runs_and_nothing_else(manifests, container):
    pod = manifests["Job"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    claims = {volume["name"]: volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: claims[mount["name"]] for mount in container["volumeMounts"]}
    assert mounts == {"/runs": manifests["PersistentVolumeClaim"]["metadata"]["name"], "/tmp": None}
