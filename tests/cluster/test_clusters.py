"""A cluster is gone, with all that it wrote, when its block is left, also by an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.clusters import HOME, local_cluster, start_master, start_worker

pytestmark = pytest.mark.cluster


def litter() -> set[Path]:
    """What stands in the folder of the installed package that a ``local-cluster`` writes to."""
    work = HOME / "work"
    return set(work.iterdir()) if work.exists() else set()


def test_a_local_cluster_leaves_nothing_in_the_installed_package() -> None:
    before = litter()
    with pytest.raises(ZeroDivisionError), local_cluster() as session:
        assert session.range(3).repartition(2).count() == 3
        assert litter() - before
        raise ZeroDivisionError
    assert litter() == before


def test_the_processes_of_a_standalone_cluster_are_stopped(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), start_master() as master, start_worker(master.said, tmp_path) as worker:
        assert master.process.poll() is None
        assert worker.process.poll() is None
        raise ZeroDivisionError
    assert master.process.poll() is not None
    assert worker.process.poll() is not None
