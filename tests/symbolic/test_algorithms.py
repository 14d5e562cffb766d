"""What each algorithm must be able to do and cost, held against what the proof derives."""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcoll.schedule import Algorithm
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.counts import lower_bound
from hpcoll.schedule.operations import Send
from hpcoll.schedule.registry import algorithms, find
from hpcoll.schedule.topology import Topology
from hpcoll.schedule.verify import Proof, prove

from .catalogue import DISTANCES, TABLE, Cost, Limit, Row, always, full, power

SIZES = (*range(1, 10), 12, 15, 16, 17)
REAL = [a for a in algorithms() if not a.native]
NAMES = sorted({row.name for row in TABLE})
PLACED = {row.name for row in TABLE if row.per_node}
ROWS = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)


@cache
def proved(spec: str, size: int, per_node: int = 0) -> Proof:
    topology = Topology.blocks(size, per_node) if per_node else None
    return prove(find(spec), size, topology=topology)


def check_cost(what: str, counted: int | Fraction, cost: Cost | Limit, size: int) -> None:
    limit = cost if isinstance(cost, Limit) else Limit(cost, always)
    if limit.exact(size):
        assert counted == limit.formula(size), f"{what} of {size} ranks"
    elif limit.most is not None:
        assert counted <= limit.most(size), f"{what} of {size} ranks, at most"


def check(row: Row, size: int) -> None:
    """Hold a proof against what the table says."""
    proof = proved(row.spec, size, row.per_node)
    assert proof.fault is None
    if not row.serves(size):
        others = [r.name.split("/")[1] for r in rows_of(row.name.split("/")[0]) if r.serves(size)]
        assert any(other in str(proof.skipped) for other in others)
        return
    assert proof.skipped is None
    for what, told in (
        ("rank_order", row.ordered(size)),
        ("bit_identical", row.identical(size)),
        ("in_place", row.in_place(size)),
    ):
        assert told in (None, getattr(proof, what)), f"{what} at {size} ranks"
    counts = proof.counts
    assert counts is not None
    if not row.per_node or full(row.per_node)(size):
        check_cost("rounds", counts.rounds, row.rounds, size)
        check_cost("volume", counts.volume, row.volume, size)
        check_cost("reductions", counts.reductions, row.reductions, size)
    bound = lower_bound(row.name.split("/")[0], size)
    assert counts.rounds >= bound.rounds
    assert counts.volume >= bound.volume
    assert counts.reductions >= bound.reductions


def rows_of(collective: str) -> list[Row]:
    return [row for row in TABLE if row.name.startswith(f"{collective}/")]


def messages(algorithm: Algorithm, size: int) -> Iterator[tuple[int, int, int]]:
    """Sender, receiver and number of chunks of each message."""
    for rank in range(size):
        for step in algorithm.steps(algorithm.problem(rank, size)):
            for op in step:
                if isinstance(op, Send):
                    yield from ((rank, peer, len(op.chunks)) for peer in op.peers)


def test_the_table_and_the_registry_hold_the_same_algorithms() -> None:
    assert [a.full_name for a in sorted(REAL, key=lambda a: a.full_name)] == NAMES


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_has_an_algorithm_for_all_it_may_be_asked(collective: str) -> None:
    anywhere = [row for row in rows_of(collective) if row.serves is always]
    assert anywhere
    assert any(row.ordered is always for row in anywhere)


@pytest.mark.parametrize("algorithm", REAL, ids=lambda a: a.full_name)
def test_an_algorithm_says_where_it_is_from(algorithm: Algorithm) -> None:
    assert re.search("doi:|arXiv:", algorithm.source)
    assert algorithm.doc


@pytest.mark.parametrize("size", SIZES)
@ROWS
def test_proof_and_costs(row: Row, size: int) -> None:
    check(row, size)


@pytest.mark.parametrize("size", [32, 33])
@pytest.mark.parametrize("row", {r.name: r for r in reversed(TABLE)}.values(), ids=lambda r: r.id)
def test_large(row: Row, size: int) -> None:
    check(row, size)


@pytest.mark.parametrize("spec", ["allreduce/ring", "alltoall/pairwise", "allgather/circulant"])
def test_very_large(spec: str) -> None:
    check(next(row for row in TABLE if row.spec == spec), 96)


@pytest.mark.parametrize("name", NAMES)
def test_only_some_algorithms_look_at_the_nodes(name: str) -> None:
    proof = proved(name, 8)
    assert proof.proved
    assert proof.topological is (name in PLACED)


@pytest.mark.parametrize("size", [2, 3, 5, 7, 9])
@pytest.mark.parametrize("name", sorted(PLACED))
def test_nodes_of_unequal_sizes_and_mixed_ranks(name: str, size: int) -> None:
    proof = proved(name, size)
    assert proof.proved
    assert proof.bit_identical


@pytest.mark.parametrize("size", [5, 8, 11, 16, 32])
@pytest.mark.parametrize("name", DISTANCES)
def test_messages_travel_along_the_edges_of_the_paper(name: str, size: int) -> None:
    edges, where = DISTANCES[name]
    if not where(size):
        return
    wanted = {min(d % size, -d % size) for d in edges(size)}
    found = {min((a - b) % size, (b - a) % size) for a, b, _ in messages(find(name), size)}
    assert found == wanted


@pytest.mark.parametrize("aggregate", [1, 2, 4, 8])
@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
def test_no_message_of_pat_holds_more_than_the_aggregate(collective: str, aggregate: int) -> None:
    algorithm = find(f"{collective}/pat:aggregate={aggregate}")
    for size in (5, 8, 13, 16):
        most = max(n for _, _, n in messages(algorithm, size))
        assert most <= aggregate
        assert not power(size) or most == min(aggregate, size // 2)


@pytest.mark.parametrize("window", [1, 3, 8, 40])
def test_no_step_of_a_window_has_more_messages(window: int) -> None:
    algorithm = find(f"alltoall/linear:window={window}")
    for rank in range(12):
        sends = [
            sum(len(op.peers) for op in step if isinstance(op, Send))
            for step in algorithm.steps(algorithm.problem(rank, 12))
        ]
        assert max(sends) == min(window, 11)
        assert sum(sends) == 11


@pytest.mark.parametrize("collective", ["allreduce", "allgather", "reduce_scatter"])
def test_a_ring_that_keeps_nodes_together_leaves_each_once(collective: str) -> None:
    topology = Topology([r % 4 for r in range(12)])
    algorithm = find(f"{collective}/node_ring")
    links = set()
    for rank in range(12):
        for step in algorithm.steps(algorithm.problem(rank, 12, topology=topology)):
            links |= {(rank, peer) for op in step if isinstance(op, Send) for peer in op.peers}
    assert len(links) == 12
    assert sum(topology.node_of[a] != topology.node_of[b] for a, b in links) == 4


@pytest.mark.parametrize("name", sorted({r.name for r in TABLE if "segments=" in r.spec}))
def test_pipelining_pays(name: str) -> None:
    """In units of a whole message, a round of one of 8 segments is an eighth."""
    whole, cut = (
        prove(find(f"{name}:segments={s}"), 9, roots=[0], topology=Topology.blocks(9, 3)).counts
        for s in (1, 8)
    )
    assert whole is not None
    assert cut is not None
    assert Fraction(cut.rounds, 8) < whole.rounds
    assert cut.volume <= whole.volume


@pytest.mark.parametrize(
    "name", sorted({r.name for r in TABLE if "radix=" in r.spec and "knomial" not in r.spec})
)
def test_a_radix_of_one_is_refused_with_the_reason(name: str) -> None:
    assert "2 or more" in str(prove(find(f"{name}:radix=1"), 4).skipped)


@pytest.mark.parametrize(
    "spec",
    [
        "allgather/bruck:radix=20",
        "alltoall/bruck:radix=20",
        "alltoall/grid:columns=20",
        "alltoall/linear:window=20",
        "allreduce/recursive_multiplying:radix=20",
        "barrier/dissemination:radix=20",
        "broadcast/knomial:radix=20",
    ],
)
def test_a_tunable_may_be_above_the_number_of_ranks(spec: str) -> None:
    for size in (1, 2, 7, 12):
        assert prove(find(spec), size).proved


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


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(OWNED), st.integers(1, 11), st.data())
def test_any_owners(algorithm: Algorithm, size: int, data: st.DataObject) -> None:
    owners = tuple(data.draw(st.lists(st.integers(0, size - 1), max_size=2 * size)))
    root = data.draw(st.integers(0, size - 1)) if COLLECTIVES[algorithm.collective].rooted else 0
    places = st.lists(st.integers(0, 3), min_size=size, max_size=size)
    topology = Topology(data.draw(places) if algorithm.full_name in PLACED else (0,) * size)
    with patch("hpcoll.schedule.verify._owner_maps", lambda *_: iter([owners])):
        proof = prove(algorithm, size, roots=[root], topology=topology)
    serves = next(row.serves for row in TABLE if row.name == algorithm.full_name)
    assert proof.proved or (proof.skipped and not serves(size))
