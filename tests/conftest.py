"""What all tests share: tests over MPI are collected in MPI jobs only, see test_mpi.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcoll.schedule import registry

MPI_TESTS = Path(__file__).parent / "mpi"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave tests/mpi to the jobs that test_mpi.py starts."""
    inside = any(config.getoption(o, default=False) for o in ("--with-mpi", "--only-mpi"))
    return True if collection_path == MPI_TESTS and not inside else None


@pytest.fixture(autouse=True)
def _registry_as_it_was() -> Iterator[None]:
    """Take out of the registry what a test has put in, so that no later test meets it."""
    registry.load_all()
    before = dict(registry._algorithms)
    yield
    registry._algorithms.clear()
    registry._algorithms.update(before)
    for name in [m for m in sys.modules if m.startswith("hpcoll_loaded_")]:
        del sys.modules[name]
