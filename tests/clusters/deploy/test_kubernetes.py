"""The manifests are valid, and the pods of the Job train together what one sweep would."""

import signal
from pathlib import Path

import pytest
import yaml

from arith_erd.system.cli_errors import EXIT_BUSY


@pytest.fixture
def manifests(root: Path) -> dict[str, dict]:
    """Every document of deploy/k8s/ by its kind."""
    documents = [yaml.safe_load(path.read_text()) for path in (root / "deploy" / "k8s").glob("*.yaml")]
    return {document["kind"]: document for document in documents}


def test_manifests_are_valid_in_every_supported_kubernetes(manifests):
    """1.29 is the first that retries an item by itself (backoffLimitPerIndex) without being configured to."""
    validator = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for manifest in manifests.values():
        for version in ("1.29", validator.latest_version()):
            validator.validate(manifest, version, strict=True)


def test_busy_or_stopped_pod_is_no_failed_try_and_gpu_nodes_are_tolerated(manifests):
    """The codes must be ordered: the API refuses others, the schema does not."""
    spec = manifests["Job"]["spec"]
    codes = [rule for rule in spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert [(rule["action"], rule["onExitCodes"]["values"]) for rule in codes] == [
        ("Ignore", [EXIT_BUSY, 128 + signal.SIGTERM])
    ]
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # a failure policy needs it
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]


def test_there_is_a_pod_for_each_job_of_the_sweep(manifests, main):
    """That ``job_index`` selects one job: ``tests/unit/launch/test_sweep.py``."""
    (container,) = manifests["Job"]["spec"]["template"]["spec"]["containers"]
    *arguments, index = container["args"]
    assert index == "job_index=$(JOB_COMPLETION_INDEX)"
    completions = manifests["Job"]["spec"]["completions"]
    assert f"for one of {completions} jobs" in main("train.py", *arguments, f"job_index={completions}").stderr
