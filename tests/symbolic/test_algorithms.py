"""What each algorithm must be able to do and cost, held against what the proof derives."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcoll.schedule import Algorithm
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.counts import lower_bound
from hpcoll.schedule.registry import algorithms, find
from hpcoll.schedule.topology import Topology
from hpcoll.schedule.verify import prove

SIZES = (*range(1, 10), 12, 15, 16, 17)


def log(p: int) -> int:
    """Logarithm to base 2, rounded up."""
    return (p - 1).bit_length()


def power(p: int) -> bool:
    return p & (p - 1) == 0


def always(p: int) -> bool:
    return True


def share(p: int) -> Fraction:
    return Fraction(p - 1, p)


def none(p: int) -> int:
    return 0


def steps(p: int) -> int:
    return p - 1


def one(p: int) -> int:
    return min(p - 1, 1)


def folded(p: int, phases: int = 1) -> int:
    """Rounds of recursive doubling with a fold where p is no power of two."""
    return phases * (p.bit_length() - 1) + (0 if power(p) else 2)


def popcounts(p: int) -> Fraction:
    return Fraction(sum(i.bit_count() for i in range(p)), p)


Cost = Callable[[int], "int | Fraction"]


@dataclass(frozen=True)
class Row:
    """What must hold of one algorithm.

    `serves` and `in_place` say for which p; `exact` for which p the formulas of
    volume and reductions are met exactly (elsewhere they are not asked).
    """

    rounds: Cost
    volume: Cost
    reductions: Cost = none
    ordered: bool = True
    serves: Callable[[int], bool] = always
    in_place: Callable[[int], bool] = always
    exact: Callable[[int], bool] = always


TABLE: dict[str, Row] = {
    "allreduce/ring": Row(lambda p: 2 * (p - 1), lambda p: 2 * share(p), share, ordered=False),
    "allreduce/recursive_doubling": Row(folded, log, log, exact=power),
    "allreduce/recursive_halving_doubling": Row(
        lambda p: folded(p, 2), lambda p: 2 * share(p), share, exact=power
    ),
    "allreduce/one_shot": Row(steps, steps, steps),
    "allreduce/two_shot": Row(lambda p: 2 * (p - 1), lambda p: 2 * share(p), share),
    "allgather/ring": Row(steps, share),
    "allgather/recursive_doubling": Row(log, share, serves=power),
    "allgather/bruck": Row(log, share),
    "allgather/direct": Row(steps, share),
    "reduce_scatter/ring": Row(steps, share, share, ordered=False),
    "reduce_scatter/pairwise": Row(steps, share, share, ordered=False),
    "reduce_scatter/direct": Row(steps, share, share),
    "reduce_scatter/recursive_halving": Row(folded, share, share, exact=power),
    "alltoall/spread_out": Row(steps, share),
    "alltoall/pairwise": Row(steps, share, in_place=power),
    "alltoall/bruck": Row(log, popcounts, in_place=power),
    "broadcast/binomial": Row(log, log),
    "broadcast/direct": Row(steps, steps),
    "reduce/binomial": Row(log, log, log),
    "reduce/direct": Row(steps, steps, steps),
    "gather/binomial": Row(log, share),
    "gather/direct": Row(steps, share),
    "scatter/binomial": Row(log, share),
    "scatter/direct": Row(steps, share),
    "scan/direct": Row(steps, steps, steps),
    "scan/chain": Row(steps, one, one),
    "scan/recursive_doubling": Row(log, log, lambda p: max(2 * log(p) - 2, log(p)), exact=power),
    "exscan/direct": Row(steps, steps, lambda p: max(p - 2, 0)),
    "exscan/chain": Row(steps, one, lambda p: int(p > 2)),
    "exscan/recursive_doubling": Row(log, log, lambda p: max(2 * log(p) - 3, 0), exact=power),
    "barrier/direct": Row(steps, none),
    "barrier/dissemination": Row(log, none),
}

REAL = [a for a in algorithms() if not a.native]


def test_the_table_and_the_registry_hold_the_same_algorithms() -> None:
    assert {a.full_name for a in REAL} == set(TABLE)


def test_every_collective_has_an_algorithm_for_any_number_of_ranks() -> None:
    for collective in COLLECTIVES:
        rows = [row for name, row in TABLE.items() if name.startswith(f"{collective}/")]
        assert any(row.serves is always for row in rows), collective


def test_every_reduction_has_an_algorithm_that_keeps_rank_order() -> None:
    for collective, kind in COLLECTIVES.items():
        if kind.reduces:
            names = [n for n, r in TABLE.items() if n.startswith(f"{collective}/") and r.ordered]
            assert names, collective


@pytest.mark.parametrize("algorithm", REAL, ids=lambda a: a.full_name)
def test_an_algorithm_says_where_it_is_from(algorithm: Algorithm) -> None:
    assert "doi:" in algorithm.source or "arXiv:" in algorithm.source
    assert algorithm.doc


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TABLE)
def test_proof_and_costs(name: str, size: int) -> None:
    row, proof = TABLE[name], prove(find(name), size)
    assert proof.fault is None
    if not row.serves(size):
        assert proof.skipped
        assert "bruck" in proof.skipped
        return
    assert proof.proved
    assert proof.bit_identical
    if row.ordered or size > 3:
        assert proof.rank_order is row.ordered
    assert proof.in_place is row.in_place(size)
    counts = proof.counts
    assert counts is not None
    assert counts.rounds == row.rounds(size)
    if row.exact(size):
        assert counts.volume == row.volume(size)
        assert counts.reductions == row.reductions(size)
    bound = lower_bound(name.split("/")[0], size)
    assert counts.rounds >= bound.rounds
    assert counts.volume >= bound.volume
    assert counts.reductions >= bound.reductions


@pytest.mark.parametrize("size", [31, 32, 33, 64])
@pytest.mark.parametrize("name", TABLE)
def test_large(name: str, size: int) -> None:
    proof = prove(find(name), size)
    assert proof.proved is TABLE[name].serves(size)
    assert proof.fault is None


@pytest.mark.parametrize("name", ["allreduce/ring", "alltoall/pairwise", "alltoall/bruck"])
def test_very_large(name: str) -> None:
    counts = prove(find(name), 128).counts
    assert counts is not None
    assert counts.rounds == TABLE[name].rounds(128)


@pytest.mark.parametrize("radix", [2, 3, 4, 7, 20])
@pytest.mark.parametrize("name", ["alltoall/bruck", "barrier/dissemination"])
def test_radix(name: str, radix: int) -> None:
    algorithm = find(f"{name}:radix={radix}")
    for size in (*range(1, 12), 16, 27):
        assert prove(algorithm, size).proved
    if radix > 10:
        return
    digits, size = (3, radix**3) if radix < 4 else (2, radix**2)
    counts = prove(algorithm, size).counts
    assert counts is not None
    assert counts.rounds == digits * (radix - 1)
    if name == "alltoall/bruck":
        assert counts.volume == Fraction(digits * (radix - 1), radix)


def test_radix_one_is_refused_with_the_reason() -> None:
    for name in ("alltoall/bruck", "barrier/dissemination"):
        assert "2 or more" in str(prove(find(f"{name}:radix=1"), 4).skipped)


def test_reduce_has_another_schedule_for_operators_that_need_rank_order() -> None:
    algorithm = find("reduce/binomial")
    for root in range(6):
        proof = prove(algorithm, 6, roots=[root])
        assert proof.rank_order
        assert proof.counts is not None
        assert proof.counts.rounds == 3
    both = [
        [algorithm.steps(algorithm.problem(r, 6, root=2, commutes=c)) for r in range(6)]
        for c in (True, False)
    ]
    assert both[0] != both[1]


OWNED = [a for a in REAL if COLLECTIVES[a.collective].owned]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(OWNED), st.integers(1, 11), st.data())
def test_any_owners(algorithm: Algorithm, size: int, data: st.DataObject) -> None:
    owners = tuple(data.draw(st.lists(st.integers(0, size - 1), max_size=2 * size)))
    root = data.draw(st.integers(0, size - 1)) if COLLECTIVES[algorithm.collective].rooted else 0
    with patch("hpcoll.schedule.verify._owner_maps", lambda *_: iter([owners])):
        proof = prove(algorithm, size, roots=[root])
    assert proof.proved or (proof.skipped and not TABLE[algorithm.full_name].serves(size))


@pytest.mark.parametrize("name", TABLE)
def test_a_topology_changes_nothing_in_flat_algorithms(name: str) -> None:
    two = prove(find(name), 8, topology=Topology((0, 0, 0, 0, 1, 1, 1, 1)))
    assert two == prove(find(name), 8)
