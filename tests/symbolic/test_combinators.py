"""Algorithms made of algorithms: proved on many placements, orders, segments and owners."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcoll.algorithms import (
    bruck,
    chain,
    direct,
    dissemination,
    pairwise,
    recursive_doubling,
    recursive_halving,
    ring,
    tree,
)
from hpcoll.errors import RegistryError, ScheduleError
from hpcoll.schedule import (
    Algorithm,
    Problem,
    leaders,
    mirrored,
    part,
    permuted,
    rails,
    recv,
    reversed_,
    segmented,
    send,
    sequence,
)
from hpcoll.schedule.counts import Counts
from hpcoll.schedule.operations import LANES, Send, written_by
from hpcoll.schedule.parts import slots_of
from hpcoll.schedule.registry import find, load_file
from hpcoll.schedule.topology import Topology
from hpcoll.schedule.verify import prove

SIZES = range(1, 10)


def placements(size: int) -> set[Topology]:
    """Ranks on one node, in pairs, dealt out in turn, unequal, mixed up, each on its own."""
    return {
        Topology.single_node(size),
        Topology.blocks(size, 2),
        Topology.blocks(size, 4),
        Topology([r % 2 for r in range(size)]),
        Topology([0] * (size - 1) + [1]),
        Topology([0] + [1] * (size - 1)),
        Topology([0] * (size // 3) + [1] * (size - size // 3)),
        Topology([r * r % 5 % 3 for r in range(size)]),
        Topology(range(size)),
    }


def counted(algorithm: Algorithm, size: int, topology: Topology | None = None) -> Counts:
    counts = prove(algorithm, size, topology=topology, roots=[0]).counts
    assert counts is not None
    return counts


def prove_all(algorithm: Algorithm, *, identical: bool = True) -> None:
    """Right at all roots, irregular owners and kinds of operator, on every placement."""
    for size in SIZES:
        for topology in placements(size):
            proof = prove(algorithm, size, topology=topology)
            assert proof.proved, (size, topology, proof.fault, proof.skipped)
            assert proof.bit_identical or not identical


def prove_flat(algorithm: Algorithm, *, identical: bool = True) -> None:
    """Right at all roots, irregular owners and kinds of operator; it never sees a node."""
    for size in SIZES:
        proof = prove(algorithm, size)
        assert proof.proved, (size, proof.fault, proof.skipped)
        assert not proof.topological
        assert proof.bit_identical or not identical


def nodes_together(p: Problem) -> list[int]:
    return [rank for node in p.nodes for rank in node]


def backwards(p: Problem) -> range:
    return range(p.size - 1, -1, -1)


def rotated(p: Problem) -> list[int]:
    return [*range(1, p.size), 0]


def odd_first(p: Problem) -> list[int]:
    return [*range(1, p.size, 2), *range(0, p.size, 2)]


ORDERS = [nodes_together, backwards, rotated, odd_first]
ORDERLESS = [
    ring.allreduce,
    recursive_halving.allreduce,
    ring.allgather,
    recursive_halving.reduce_scatter,
    direct.reduce_scatter,
    pairwise.alltoall,
    bruck.alltoall,
    tree.broadcast,
    tree.reduce,
    tree.gather,
    tree.scatter,
    dissemination.barrier,
]
CUTTABLE = [a for a in ORDERLESS if "alltoall" not in a.__name__ and "barrier" not in a.__name__]


# In these, all ranks that are in a message are in the same step.
IN_STEP = [
    ring.allreduce,
    ring.allgather,
    ring.reduce_scatter,
    bruck.allgather,
    direct.two_shot,
    direct.reduce_scatter,
    pairwise.reduce_scatter,
    tree.gather,
]


def label(value: Any) -> str:
    """A name for a part of a test: the file and the function."""
    if isinstance(value, tuple):
        return "+".join(map(label, value))
    if callable(value):
        return f"{value.__module__.rpartition('.')[2]}.{value.__name__}"
    return str(value)


# permuted


@pytest.mark.parametrize("order", ORDERS[1:], ids=label)
@pytest.mark.parametrize("base", ORDERLESS, ids=label)
def test_any_order_of_the_ranks(base: Any, order: Any) -> None:
    prove_flat(permuted(base, order))


@pytest.mark.parametrize("base", [ring.allreduce, tree.reduce, bruck.allgather], ids=label)
def test_an_order_by_nodes(base: Any) -> None:
    prove_all(permuted(base, nodes_together))
    assert prove(permuted(base, nodes_together), 6).topological


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ORDERLESS), st.integers(1, 8), st.data())
def test_an_order_costs_what_the_ranks_in_turn_cost(base: Any, size: int, data: Any) -> None:
    order = data.draw(st.permutations(range(size)))
    algorithm = permuted(base, lambda p: order)
    assert prove(algorithm, size).proved
    if "gather" not in base.__name__ and "scatter" not in base.__name__:
        before = counted(permuted(base, lambda p: range(size)), size)
        after = counted(algorithm, size)
        assert (after.messages, after.volume, after.total) == (
            before.messages,
            before.volume,
            before.total,
        ) or base in (tree.broadcast, tree.reduce)


def test_an_order_by_nodes_saves_messages_between_them() -> None:
    topology = Topology([r % 4 for r in range(12)])

    def crossing(algorithm: Algorithm) -> int:
        ranks = [algorithm.steps(algorithm.problem(r, 12, topology=topology)) for r in range(12)]
        return sum(
            topology.node_of[rank] != topology.node_of[peer]
            for rank, steps in enumerate(ranks)
            for step in steps
            for op in step
            if isinstance(op, Send)
            for peer in op.peers
        )

    assert crossing(permuted(ring.allreduce, lambda p: range(p.size))) == 12 * 22
    assert crossing(permuted(ring.allreduce, nodes_together)) == 4 * 22


@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1], [1, 2, 3], [0, 1, 2, 3]], ids=str)
def test_an_order_must_name_each_rank_once(order: list[int]) -> None:
    algorithm = permuted(ring.allreduce, lambda p: order)
    with pytest.raises(RegistryError, match="doesn't name each of 3 ranks once"):
        prove(algorithm, 3)


# mirrored


@pytest.mark.parametrize("base", IN_STEP, ids=label)
def test_both_directions_at_once(base: Any) -> None:
    prove_flat(mirrored(base))


@pytest.mark.parametrize("base", sorted({*CUTTABLE} - {*IN_STEP}, key=label), ids=label)
def test_halves_go_on_step_by_step_so_all_ranks_must_be_in_step(base: Any) -> None:
    """A rank may not wait in one half for a rank that waits for it in the other."""
    proofs = [prove(mirrored(base), size) for size in (2, 3, 5, 7)]
    faults = [proof.kind for proof in proofs if proof.fault]
    assert faults
    assert {*faults} <= {"deadlock", "needs buffering"}


@pytest.mark.parametrize("base", [ring.allreduce, ring.allgather, ring.reduce_scatter], ids=label)
def test_a_mirrored_ring_uses_both_directions_for_half_each(base: Any) -> None:
    one, both = counted(find(f"{base.__name__}/ring"), 7), counted(mirrored(base), 7)
    assert both.volume == one.volume
    assert both.reductions == one.reductions
    assert both.messages == 2 * one.messages
    assert both.depth == one.depth
    assert both.path == one.path / 2


def test_the_halves_travel_in_lanes_of_their_own() -> None:
    algorithm = mirrored(ring.allreduce)
    steps = algorithm.steps(algorithm.problem(0, 2))
    lanes = {op.lane for step in steps for op in step if isinstance(op, Send)}
    assert lanes == {0, LANES // 2}
    assert "no lane 16" in str(prove(mirrored(mirrored(ring.allreduce)), 2).fault)


# segmented


@pytest.mark.parametrize("segments", [1, 3, 17, 40])
@pytest.mark.parametrize("base", CUTTABLE, ids=label)
def test_any_number_of_segments(base: Any, segments: int) -> None:
    algorithm = segmented(base, segments)
    assert algorithm.tunables[-1] == ("segments", segments)
    for size in (1, 2, 3, 5, 8) if segments < 17 else (1, 2, 5):
        assert prove(algorithm, size).proved


@pytest.mark.parametrize("segments", [1, 2, 8])
def test_a_pipeline_takes_a_round_more_for_each_segment(segments: int) -> None:
    line = leaders(
        "broadcast",
        inter=tree.broadcast,
        broadcast=tree.broadcast,
        groups=lambda p: tuple((r,) for r in range(p.size)),
    )
    two = counted(segmented(line, segments), 2)
    assert two.rounds == segments
    assert two.volume == 1
    # Three ranks in two stages: what the first passed on, the second takes a round later.
    relay = leaders(
        "broadcast",
        inter=tree.broadcast,
        broadcast=tree.broadcast,
        groups=lambda p: ((0,), tuple(range(1, p.size))),
    )
    assert counted(segmented(relay, segments), 3).rounds == segments + 1


@pytest.mark.parametrize("owners", [(0, 0, 0, 1), (2, 2, 2, 2, 2, 0, 0), (), (1,)], ids=str)
def test_segments_of_owners_that_have_few_chunks(owners: tuple[int, ...]) -> None:
    """Where a block has fewer chunks than there are segments, some segments have none of it."""
    algorithm = segmented(ring.allgather, 5)
    for rank in range(3):
        p = algorithm.problem(rank, 3, owners=owners)
        got = [c for step in algorithm.steps(p) for op in step for c in written_by(op)]
        assert sorted(got) == [c for c in range(p.chunks) if c not in p.owned(rank)]


def test_both_ends_of_a_message_are_in_the_same_slot() -> None:
    for base in ("allreduce/recursive_doubling", "broadcast/binomial", "allgather/bruck"):
        algorithm = find(base)
        schedules = [algorithm.steps(algorithm.problem(r, 7)) for r in range(7)]
        slots = slots_of(schedules)
        ends: dict[tuple[int, int, str], list[int]] = {}
        for rank, steps in enumerate(schedules):
            assert slots[rank] == sorted(set(slots[rank]))
            for step, slot in zip(steps, slots[rank], strict=True):
                for op in step:
                    if isinstance(op, Send):
                        for peer in op.peers:
                            ends.setdefault((rank, peer, "out"), []).append(slot)
                    else:
                        sources = [op] if hasattr(op, "peer") else op.operands
                        for m in sources:
                            if hasattr(m, "peer"):
                                ends.setdefault((m.peer, rank, "in"), []).append(slot)
        for (source, target, way), at in ends.items():
            assert at == ends[source, target, "in" if way == "out" else "out"]


def test_messages_without_a_counterpart_have_no_slot() -> None:
    with pytest.raises(ScheduleError, match="rank 0 sends 1 messages to rank 1, which receives 0"):
        slots_of([[(send(1, 0),)], []])
    crossed = [[(send(1, 0),), (recv(1, 0),)], [(send(0, 0),), (recv(0, 0),)]]
    with pytest.raises(ScheduleError, match="can't be sent and received in the same steps"):
        slots_of(crossed)


# reversed


@pytest.mark.parametrize(
    ("base", "collective"),
    [
        (tree.broadcast, "reduce"),
        (direct.broadcast, "reduce"),
        (ring.allgather, "reduce_scatter"),
        (bruck.allgather, "reduce_scatter"),
        (direct.allgather, "reduce_scatter"),
        (tree.scatter, "gather"),
        (direct.scatter, "gather"),
    ],
    ids=label,
)
def test_what_spreads_collects_backwards(base: Any, collective: str) -> None:
    algorithm = reversed_(base)
    assert algorithm.collective == collective
    prove_flat(algorithm)
    forward = find(f"{base.__name__}/{_name(base)}")
    for size in (2, 5, 8, 9):
        there, back = counted(forward, size), counted(algorithm, size)
        assert back.volume == there.volume
        assert back.messages == there.messages
        assert back.total == there.total
        if collective != "gather":
            assert back.reductions <= there.volume
            assert back.reductions >= Fraction(size - 1, size)


def _name(function: Callable[..., Any]) -> str:
    file = function.__module__.rpartition(".")[2]
    return {"tree": "binomial"}.get(file, file)


def test_what_copies_or_is_no_spreading_is_not_reversed() -> None:
    for base in (ring.allreduce, tree.reduce, bruck.alltoall, chain.scan):
        with pytest.raises(RegistryError, match="can't be reversed: only broadcast"):
            reversed_(base)
    copying = replace(find("broadcast/binomial"), function=_copying)
    fault = prove(reversed_(copying), 2).fault
    assert fault is not None
    assert "copies or folds can't be run backwards" in fault


def _copying(p: Problem) -> Iterator[Any]:
    from hpcoll.schedule import copy, tmp

    if p.rank == p.root:
        yield copy(tmp(0), 0)
    yield from tree.broadcast(p)


# sequence


@pytest.mark.parametrize(
    ("collective", "parts"),
    [
        ("allreduce", (ring.reduce_scatter, bruck.allgather)),
        ("allreduce", (recursive_halving.reduce_scatter, ring.allgather)),
        ("allreduce", (direct.reduce_scatter, direct.allgather)),
        ("allreduce", (tree.reduce, tree.broadcast)),
        ("broadcast", (tree.scatter, ring.allgather)),
        ("broadcast", (direct.scatter, bruck.allgather)),
        ("reduce", (pairwise.reduce_scatter, tree.gather)),
        ("reduce", (ring.allreduce,)),
    ],
    ids=label,
)
def test_one_after_the_other(collective: str, parts: tuple[Any, ...]) -> None:
    algorithm = sequence(collective, *parts)
    prove_flat(algorithm)
    costs = [counted(find(f"{f.__name__}/{_name(f)}"), 8) for f in parts]
    whole = counted(algorithm, 8)
    assert whole.depth <= sum(c.depth for c in costs)
    assert whole.volume <= sum(c.volume for c in costs)
    assert whole.reductions == sum(c.reductions for c in costs)


# rails


RAILS = {
    "allreduce": [
        ((direct.reduce_scatter, direct.allgather), ring.allreduce),
        ((ring.reduce_scatter, bruck.allgather), recursive_doubling.allreduce),
        ((recursive_halving.reduce_scatter, ring.allgather), recursive_halving.allreduce),
    ],
    "broadcast": [
        ((tree.scatter, ring.allgather), tree.broadcast),
        ((direct.scatter, bruck.allgather), direct.broadcast),
    ],
    "reduce_scatter": [
        (direct.reduce_scatter, ring.reduce_scatter),
        (recursive_halving.reduce_scatter, direct.reduce_scatter),
    ],
    "allgather": [(ring.allgather, bruck.allgather), (direct.allgather, ring.allgather)],
    "alltoall": [(pairwise.alltoall, bruck.alltoall), (direct.alltoall, direct.alltoall)],
}


@pytest.mark.parametrize(
    ("collective", "intra", "inter"),
    [(c, *pair) for c, pairs in RAILS.items() for pair in pairs],
    ids=label,
)
def test_rails_on_any_placement(collective: str, intra: Any, inter: Any) -> None:
    prove_all(rails(collective, intra=intra, inter=inter))


def test_rails_share_the_message_between_nodes() -> None:
    algorithm = rails(
        "allreduce", intra=(direct.reduce_scatter, direct.allgather), inter=ring.allreduce
    )
    topology = Topology.blocks(12, 4)
    between = [0] * 12
    for rank in range(12):
        for step in algorithm.steps(algorithm.problem(rank, 12, topology=topology)):
            for op in step:
                if isinstance(op, Send):
                    far = [r for r in op.peers if r // 4 != rank // 4]
                    assert all(r % 4 == rank % 4 for r in far)
                    between[rank] += len(far) * len(op.chunks)
    # A ring of 3 nodes sends 4/3 of a quarter; there are 4 x 3 chunks.
    assert between == [4] * 12


def test_rails_are_only_for_some_collectives() -> None:
    with pytest.raises(RegistryError, match="no rails for reduce: only for allreduce"):
        rails("reduce", intra=tree.reduce, inter=tree.reduce)


# leaders


LEADERS = [
    ("allreduce", (tree.reduce, recursive_doubling.allreduce, tree.broadcast)),
    ("allreduce", (direct.reduce, ring.allreduce, tree.broadcast)),
    ("allreduce", (tree.reduce, recursive_halving.allreduce, direct.broadcast)),
    ("reduce", (tree.reduce, tree.reduce, None)),
    ("reduce", (direct.reduce, tree.reduce, None)),
    ("broadcast", (None, tree.broadcast, tree.broadcast)),
    ("broadcast", (None, direct.broadcast, tree.broadcast)),
    ("barrier", (tree.reduce, dissemination.barrier, tree.broadcast)),
    ("barrier", (direct.reduce, direct.barrier, direct.broadcast)),
]


@pytest.mark.parametrize(("collective", "parts"), LEADERS, ids=label)
def test_leaders_on_any_placement(collective: str, parts: tuple[Any, Any, Any]) -> None:
    reduce, inter, broadcast = parts
    algorithm = leaders(collective, reduce=reduce, inter=inter, broadcast=broadcast)
    prove_all(algorithm)
    for size in (4, 6):
        in_turn = Topology([r // 2 for r in range(size)])
        ordered = prove(algorithm, size, topology=in_turn).rank_order
        assert ordered is (inter is not ring.allreduce)


@pytest.mark.parametrize("collective", ["allreduce", "broadcast"])
def test_leaders_in_a_pipeline(collective: str) -> None:
    reduce = tree.reduce if collective == "allreduce" else None
    inter = recursive_doubling.allreduce if reduce else tree.broadcast
    algorithm = segmented(
        leaders(collective, reduce=reduce, inter=inter, broadcast=tree.broadcast), 3
    )
    prove_all(algorithm)
    on = Topology.blocks(9, 3)
    whole, cut = counted(algorithm.tuned(segments=1), 9, on), counted(algorithm, 9, on)
    assert cut.volume == whole.volume
    assert cut.path < whole.path


def test_combinations_of_combinations() -> None:
    both = mirrored(ring.allreduce)
    prove_all(
        rails(
            "allreduce",
            intra=(reversed_(bruck.allgather), bruck.allgather),
            inter=sequence("allreduce", ring.reduce_scatter, ring.allgather),
        )
    )
    prove_all(segmented(permuted(both, nodes_together), 2))
    prove_all(
        leaders("allreduce", reduce=reversed_(tree.broadcast), inter=both, broadcast=tree.broadcast)
    )


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_groups_of_ones_own(rows: int) -> None:
    def grid(p: Problem, *, columns: int = 3) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(range(p.size))[i : i + columns] for i in range(0, p.size, columns))

    algorithm = rails("alltoall", intra=pairwise.alltoall, inter=pairwise.alltoall, groups=grid)
    assert algorithm.tunables == (("columns", 3),)
    assert prove(algorithm, 6).topological is False
    for size in (rows, 3 * rows, 3 * rows + 1):
        assert prove(algorithm.tuned(columns=rows), size).proved
    counts = counted(algorithm, 3 * rows)
    assert counts.rounds == 2 + rows - 1
    assert counts.volume == Fraction(2, 3) + Fraction(rows - 1, rows)


# what can't be


@pytest.mark.parametrize("kind", [mirrored, segmented, lambda a: permuted(a, backwards)])
def test_a_scan_means_the_order_of_the_ranks(kind: Any) -> None:
    for base in (chain.scan, chain.exscan):
        if kind is segmented:
            prove_flat(kind(base), identical=False)
        else:
            with pytest.raises(RegistryError, match="a scan means the order of the ranks"):
                kind(base)


@pytest.mark.parametrize("kind", [mirrored, segmented])
@pytest.mark.parametrize("base", [bruck.alltoall, dissemination.barrier], ids=label)
def test_what_has_no_chunks_to_share_is_not_cut(kind: Any, base: Any) -> None:
    with pytest.raises(RegistryError, match="has no chunks to share"):
        kind(base)


def test_a_function_must_be_registered_to_be_combined() -> None:
    with pytest.raises(RegistryError, match="is not registered: use the @algorithm decorator"):
        mirrored(_copying)


def test_a_part_that_refuses_makes_the_whole_refuse() -> None:
    only_powers = recursive_doubling.allgather
    for algorithm in (
        mirrored(only_powers),
        segmented(only_powers),
        permuted(only_powers, backwards),
        reversed_(only_powers),
        sequence("allreduce", ring.reduce_scatter, only_powers),
        rails("allgather", intra=ring.allgather, inter=only_powers,
              groups=lambda p: tuple((r,) for r in range(p.size))),
    ):  # fmt: skip
        assert prove(algorithm, 8).proved
        assert "needs a power of two of ranks, not 6" in str(prove(algorithm, 6).skipped)


def test_tunables_reach_the_part_that_has_them() -> None:
    inner = bruck.alltoall
    algorithm = rails("alltoall", intra=pairwise.alltoall, inter=inner)
    assert algorithm.tunables == (("radix", 2),)
    topology = Topology(range(9))
    rounds = {r: counted(algorithm.tuned(radix=r), 9, topology).depth for r in (2, 9)}
    assert rounds == {2: 4, 9: 1}
    assert "2 or more" in str(prove(algorithm.tuned(radix=1), 9).skipped)
    with pytest.raises(RegistryError, match="has no tunable 'segments'"):
        algorithm.tuned(segments=3)


def test_a_part_has_no_lane_beyond_the_last() -> None:
    p = find("allreduce/ring").problem(0, 2)
    sub = p.sub(range(2))
    with pytest.raises(ScheduleError, match="no lane 16"):
        list(part(ring.allreduce(sub), sub, lane=LANES))


FILE = '''
from hpcoll.schedule import algorithm, mirrored, recv, recv_reduce, register, send

@algorithm("allgather", name="{name}", source="doi:10.1/1")
def base(p):
    """{doc}"""
    for k in range(1, p.size):
        to, source = (p.rank + k) % p.size, (p.rank - k) % p.size
        yield send(to, *p.owned(p.rank)), recv(source, *p.owned(source))

register(mirrored(base), name="{name}_mirrored")
'''


def test_a_digest_changes_with_the_parts(tmp_path: Path) -> None:
    import hpcoll.schedule.registry as registry

    before = dict(registry._algorithms)
    digests = {}
    try:
        for name in ("one", "two"):
            file = tmp_path / f"{name}.py"
            file.write_text(FILE.format(name=name, doc=name))
            base, both = load_file(file)
            assert prove(both, 5).proved
            assert both.source == "doi:10.1/1"
            assert both.doc == name
            digests[name] = both.digest, sequence("allgather", base).digest, base.digest
    finally:
        registry._algorithms.clear()
        registry._algorithms.update(before)
    assert len({d for pair in digests.values() for d in pair}) == 6
    here = [mirrored(a) for a in (ring.allreduce, recursive_doubling.allreduce)]
    assert here[0].digest != here[1].digest
    assert mirrored(ring.allreduce).digest == here[0].digest


def test_leaders_and_sequence_say_what_they_can_not_make() -> None:
    with pytest.raises(RegistryError, match="no leaders for allgather: only for allreduce"):
        leaders("allgather", inter=ring.allgather)
    with pytest.raises(RegistryError, match="need, beside inter: reduce, broadcast"):
        leaders("allreduce", inter=ring.allreduce)
    with pytest.raises(RegistryError, match="no collective 'allredcue' to make"):
        sequence("allredcue", ring.reduce_scatter, ring.allgather)


def test_no_segments_are_refused() -> None:
    with pytest.raises(RegistryError, match="segments must be a positive integer"):
        find("broadcast/chain:segments=0")
    assert "chunks gave 0" in str(prove(segmented(ring.allreduce, 0), 4).fault)


def test_a_pipeline_as_a_part() -> None:
    new = leaders(
        "allreduce",
        reduce=tree.reduce,
        inter=segmented(recursive_doubling.allreduce, 3),
        broadcast=segmented(tree.broadcast, 2),
    )
    for size in range(1, 10):
        assert prove(new, size).proved
