"""Starts the tests of tests/mpi on several numbers of ranks, with this environment's MPI.

Each test here is one MPI job that runs pytest on every rank; rank 0 reports for all.
A failure shows what the job printed.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from hpcoll.bench.launch import launcher
from hpcoll.errors import TransportUnavailable

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 600
NEEDS_GIB = 16
SHARED = Path("/dev/shm")
COLLECTIVES = "tests/mpi/test_collectives.py"


@cache
def bytecode_folder() -> str:
    """Where ranks keep bytecode if they must not write it beside the sources."""
    folder = tempfile.mkdtemp(prefix="hpcoll-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def run_job(ranks: int, *arguments: str, **settings: str) -> dict[str, int]:
    """Run pytest in an MPI job; return how many tests passed, were skipped and so on.

    Parameters
    ----------
    ranks : int
        Number of ranks.
    *arguments : str
        For the inner pytest.
    **settings : str
        Environment variables.
    """
    try:
        prefix, environment = launcher(ranks)
    except TransportUnavailable as error:
        pytest.skip(f"NOT TESTED OVER MPI: {error}")
    environment |= {"HPCOLL_TIMEOUT_S": "60", "PYTHONFAULTHANDLER": "1", **settings}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), environment.get("PYTHONPATH")))
    )
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):  # else each rank compiles everything
        environment["PYTHONPYCACHEPREFIX"] = bytecode_folder()
    command = [*prefix, sys.executable, "-m", "pytest", "--with-mpi", "-p", "no:cacheprovider"]
    command += ["-o", "faulthandler_timeout=100", *arguments]
    before = set(SHARED.glob("hpcoll-*"))
    job = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, errors="replace", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        shown, _ = job.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGTERM)
        try:
            shown, _ = job.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            shown, _ = job.communicate()
        pytest.fail(f"the job took more than {LIMIT_S} s; it printed:\n{shown}", pytrace=False)
    left = set(SHARED.glob("hpcoll-*")) - before
    assert not left, f"left behind: {', '.join(map(str, left))}"
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (\w+)", shown.rpartition("\n=")[2])}
    if job.returncode or not counts.get("passed") or counts.get("failed") or counts.get("error"):
        told = " ".join(command)
        pytest.fail(f"exit status {job.returncode} of: {told}\n{shown}", pytrace=False)
    return counts


WHICH = {
    1: ("-k", "not test_numpy_agrees", "tests/mpi"),
    2: ("-k", "not test_numpy_agrees", "tests/mpi"),
    3: ("-k", "not short", "tests/mpi"),
    4: ("-k", "not test_numpy_agrees", "tests/mpi"),
    5: ("-k", "short", COLLECTIVES),
    8: ("-k", "short", COLLECTIVES),
}
"""Every form of every call on 3 ranks; on others what more or fewer ranks can break.

That recipes are right on any number of ranks is tested in one process: test_lowering.
"""


@pytest.mark.parametrize("ranks", WHICH)
def test_ranks(ranks: int, record_property: pytest.RecordProperty) -> None:
    """Over shared memory, which is what ranks of one node take by themselves."""
    counts = run_job(ranks, "-m", "mpi and not big", *WHICH[ranks])
    print(f"{ranks} ranks: {counts}")
    record_property("inner_tests", counts["passed"])


@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_message_passing(ranks: int, record_property: pytest.RecordProperty) -> None:
    """The same over MPI's messages."""
    counts = run_job(ranks, "-m", "mpi and not big", *WHICH[ranks], HPCOLL_TRANSPORT="mpi")
    record_property("inner_tests", counts["passed"])


@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_python_engine(transport: str, record_property: pytest.RecordProperty) -> None:
    settings = {"HPCOLL_ENGINE": "python", "HPCOLL_TRANSPORT": transport}
    counts = run_job(3, "-k", "short", COLLECTIVES, **settings)
    record_property("inner_tests", counts["passed"])


def test_split_messages(record_property: pytest.RecordProperty) -> None:
    settings = {"HPCOLL_MAX_MESSAGE_NBYTES": "1000", "HPCOLL_TRANSPORT": "mpi"}
    counts = run_job(4, "-k", "short", COLLECTIVES, **settings)
    record_property("inner_tests", counts["passed"])


@pytest.mark.parametrize(("ranks", "ranks_per_node"), [(4, 2), (5, 3)])
def test_nodes(ranks: int, ranks_per_node: int, record_property: pytest.RecordProperty) -> None:
    """Algorithms for several nodes, equal and unequal, as if these ranks were on some."""
    which = "short and (hierarchical or leaders or node_ring)"
    counts = run_job(ranks, "-k", which, COLLECTIVES, HPCOLL_RANKS_PER_NODE=str(ranks_per_node))
    record_property("inner_tests", counts["passed"])


@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_more_ranks_than_cores(transport: str) -> None:
    run_job(8, "tests/mpi/test_crowded.py", HPCOLL_TRANSPORT=transport)


@pytest.mark.big
def test_large_messages() -> None:
    psutil = pytest.importorskip("psutil")
    free = psutil.virtual_memory().available / 2**30
    if free < NEEDS_GIB:
        pytest.skip(f"needs {NEEDS_GIB} GiB of memory, {free:.1f} GiB are available")
    run_job(2, "-m", "mpi and big", "tests/mpi")
