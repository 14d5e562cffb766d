"""Every collective by every algorithm, in every form, against NumPy."""

from __future__ import annotations

import pytest
from harness import MODES, NAMES, SIZE, Case, check, serving, some_counts, some_matrix

import hpcoll
from hpcoll.schedule.collectives import COLLECTIVES

pytestmark = pytest.mark.mpi

# Where ranks outnumber cores by far, fewer examples do.
CALLS = [(name, spec) for name in NAMES for spec in serving(name)]
FEW = [0, SIZE + 1, 1000]
SIZES = sorted({0, 1, SIZE - 1, SIZE, SIZE + 1, 7, 1000, 65537}) if SIZE <= 4 else FEW


def case_of(name: str, spec: str | None, n: int, seed: int, **more: object) -> Case:
    """A case of about `n` elements in all."""
    base = Case(name).base
    whole = base in ("allreduce", "reduce", "scan", "exscan", "broadcast")
    rows = n if whole else -(-n // SIZE)
    counts: tuple[object, ...] = ()
    if name == "alltoallv":
        counts = some_matrix(rows, SIZE, seed, bool(more.get("in_place")))
    elif name.endswith("v"):
        counts = some_counts(rows, SIZE, seed)
    root = seed % SIZE if COLLECTIVES[base].rooted else 0
    return Case(name, spec, rows, counts=counts, root=root, seed=seed, **more)  # type: ignore[arg-type]


FORMS = [
    (name, spec, mode, in_place)
    for name, spec in CALLS
    for mode in MODES
    for in_place in (False, True)
    if (name != "barrier" or (mode, in_place) == (MODES[0], False))
    and (SIZE <= 3 or (mode, in_place) not in ((MODES[1], False), (MODES[2], True)))
]


@pytest.mark.parametrize(("name", "spec", "mode", "in_place"), FORMS, ids=str)
def test_numpy_agrees(
    comm: hpcoll.Communicator, name: str, spec: str, mode: str, in_place: bool
) -> None:
    for seed, n in enumerate(SIZES if mode == "blocking" else FEW):
        check(comm, case_of(name, spec, n, seed, mode=mode, in_place=in_place))


@pytest.mark.parametrize(("name", "spec"), CALLS, ids=str)
def test_short(comm: hpcoll.Communicator, name: str, spec: str) -> None:
    """What test_mpi.py runs with other settings; part of the rest otherwise."""
    for seed, (mode, in_place) in enumerate((m, i) for m in MODES for i in (False, True)):
        n = (0, 5, 333, 1, 1003, SIZE)[seed]
        more = {"mode": mode, "in_place": in_place, "rest": (3,), "shared": n > 100}
        check(comm, case_of(name, spec, n, seed, **more))


@pytest.mark.parametrize(("name", "spec"), [c for c in CALLS if c[0] != "barrier"], ids=str)
def test_shared_arrays_short(comm: hpcoll.Communicator, name: str, spec: str) -> None:
    """What peers read without a copy, in pieces and whole, again and again with other data."""
    if comm.transport != "shm":
        pytest.skip("NOT TESTED HERE: arrays are shared over shared memory only")
    for seed, n in enumerate((SIZE + 1, 70_001)):
        for in_place in (False, True):
            check(
                comm, case_of(name, spec, n, seed, mode="plan", in_place=in_place, shared=True)
            )  # fmt: skip


ROOTED = [(name, spec) for name, spec in CALLS if COLLECTIVES[Case(name).base].rooted]


@pytest.mark.parametrize(("name", "spec"), ROOTED, ids=str)
def test_every_root(comm: hpcoll.Communicator, name: str, spec: str) -> None:
    for root in range(SIZE):
        for in_place in (False, True):
            check(comm, case_of(name, spec, 2 * SIZE + 3, root, in_place=in_place))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [n for n in NAMES if n != "barrier"])
def test_algorithm_is_chosen(comm: hpcoll.Communicator, name: str, mode: str) -> None:
    for seed, n in enumerate((0, 3, 300)):
        check(comm, case_of(name, None, n, seed, mode=mode, dtype="int32"))


@pytest.mark.parametrize("name", ["allgatherv", "gatherv", "alltoallv"])
def test_counts_left_out(comm: hpcoll.Communicator, name: str) -> None:
    for seed, mode in enumerate(MODES):
        for spec in (None, *serving(name)):
            check(comm, case_of(name, spec, 5 * SIZE, seed, mode=mode, told=False))


def test_no_root_reads_past_its_input_a03(comm: hpcoll.Communicator) -> None:
    for spec in serving("reduce"):
        for n in (8191, 8192, 8193):
            for mode in MODES[:2]:
                check(comm, Case("reduce", spec, n, root=n % SIZE, mode=mode, in_place=True))
