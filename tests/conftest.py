"""What all tests share: tests over MPI are collected in MPI jobs only, see test_mpi.py."""

from __future__ import annotations

from pathlib import Path

import pytest

MPI_TESTS = Path(__file__).parent / "mpi"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave tests/mpi to the jobs that test_mpi.py starts."""
    inside = any(config.getoption(o, default=False) for o in ("--with-mpi", "--only-mpi"))
    return True if collection_path == MPI_TESTS and not inside else None
