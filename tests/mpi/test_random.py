"""Random calls, drawn alike on all ranks."""

from __future__ import annotations

import pytest
from conftest import WORLD
from harness import LAYOUTS, MODES, NAMES, SIZE, Case, check, serving, some_counts, some_matrix
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import hpcoll
from hpcoll.kernels.dtypes import DTYPES, check_supported
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.ops import BUILTIN

pytestmark = pytest.mark.mpi


def accepted(op: str, dtype: str) -> bool:
    """Whether an operator goes with a dtype."""
    try:
        check_supported(BUILTIN[op], DTYPES[dtype])
    except hpcoll.BufferMismatch:
        return False
    return True


@st.composite
def calls(draw: st.DrawFn) -> Case:
    """A call of any kind."""
    name = draw(st.sampled_from([n for n in NAMES if n != "barrier"]))
    base = Case(name).base
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    op = "sum"
    if COLLECTIVES[base].reduces:
        op = draw(st.sampled_from([o for o in BUILTIN if accepted(o, dtype)]))
    spec = draw(st.sampled_from([None, *serving(name, op, dtype)]))
    rows, seed = draw(st.integers(0, 300)), draw(st.integers(0, 50))
    in_place = draw(st.booleans())
    counts: tuple[object, ...] = ()
    if name == "alltoallv":
        counts = some_matrix(min(rows, 30), SIZE, seed, in_place)
    elif name.endswith("v"):
        counts = some_counts(rows, SIZE, seed)
    return Case(
        name, spec, rows, tuple(draw(st.lists(st.integers(0, 3), max_size=2))), dtype, op,
        draw(st.integers(0, SIZE - 1)) if COLLECTIVES[base].rooted else 0, counts,
        draw(st.sampled_from(MODES)), in_place, draw(st.sampled_from(LAYOUTS)),
        draw(st.sampled_from(LAYOUTS)), seed, draw(st.booleans()), draw(st.booleans()),
    )  # fmt: skip


# Nothing here may depend on the time that a rank takes: all must draw the same.
@settings(
    max_examples=300 if SIZE <= 3 else 60, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
)  # fmt: skip
@given(calls())
def test_random_calls(comm: hpcoll.Communicator, case: Case) -> None:
    error = ""
    try:
        check(comm, case)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    said = [e for e in WORLD.allgather(error) if e]
    assert not said, said[0]
