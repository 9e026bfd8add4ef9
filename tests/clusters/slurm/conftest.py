"""A Slurm of this machine's own for each module's tests, which skip where none can be started."""

from collections.abc import Iterator

import pytest

from tests.clusters.slurm.cluster import Cluster, NoSlurmError, slurm


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """With accounting, or without: ``@pytest.mark.parametrize("cluster", [False], indirect=True)``."""
    try:
        with slurm(accounting=getattr(request, "param", True)) as running:
            yield running
    except NoSlurmError as error:
        pytest.skip(f"no Slurm here: {error}")


@pytest.fixture(autouse=True)
def _restored(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test begins on an idle cluster, whatever the test before it did."""
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").restore()
