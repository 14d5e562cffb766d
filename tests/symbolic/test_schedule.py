"""Parts of problems, the registry, and that in place means what the proof says."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcoll.algorithms import direct, recursive_halving, ring
from hpcoll.errors import ConfigError, RegistryError, ScheduleError
from hpcoll.schedule import (
    Algorithm,
    Problem,
    algorithm,
    copy,
    fold,
    part,
    recv,
    recv_reduce,
    send,
    src,
    tmp,
)
from hpcoll.schedule import registry as registry_module
from hpcoll.schedule.collectives import COLLECTIVES, collective_named
from hpcoll.schedule.memory import Memory
from hpcoll.schedule.operations import (
    Copy,
    Fold,
    Incoming,
    Recv,
    Send,
    Step,
    as_step,
)
from hpcoll.schedule.registry import algorithms, find, load_file
from hpcoll.schedule.symbols import rank_list
from hpcoll.schedule.topology import Topology
from hpcoll.schedule.verify import prove

Generator = Callable[..., Iterator[Any]]


def make(collective: str, function: Generator, chunks: Callable[[Problem], int]) -> Algorithm:
    """An algorithm that is in no registry."""
    return Algorithm(collective, function.__name__, function, chunks, lambda p: None)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Algorithm]:
    """The registry, as it was again after the test."""
    algorithms()
    kept = dict(registry_module._algorithms)
    monkeypatch.setattr(registry_module, "_algorithms", kept)
    return kept


# Parts.


def rails(p: Problem) -> int:
    """As many as the smallest node has ranks."""
    assert p.topology is not None
    return min(len(node) for node in p.topology.nodes)


def hierarchical(lanes: tuple[int, int, int] = (1, 2, 3)) -> Algorithm:
    """Reduce_scatter inside the nodes, allreduce between them, allgather inside."""

    def allreduce(p: Problem) -> Iterator[Any]:
        assert p.topology is not None
        nodes = p.topology.nodes
        node = nodes[p.topology.node_of[p.rank]]
        owners = range(p.chunks)
        intra = p.sub(node, owners, collective="reduce_scatter")
        yield from part(direct.reduce_scatter(intra), intra, lane=lanes[0])
        if intra.rank < p.chunks:
            rail = p.sub([n[intra.rank] for n in nodes], chunk_ids=[intra.rank])
            yield from part(direct.one_shot(rail), rail, lane=lanes[1])
        intra = p.sub(node, owners, collective="allgather")
        yield from part(ring.allgather(intra), intra, lane=lanes[2])

    return make("allreduce", allreduce, rails)


@pytest.mark.parametrize(
    "groups", [(1, 1), (2, 2), (4, 4), (3, 2), (1, 4), (5, 3)], ids=lambda g: f"{g[0]}+{g[1]}"
)
def test_hierarchical_allreduce_of_parts(groups: tuple[int, int]) -> None:
    topology = Topology((0,) * groups[0] + (1,) * groups[1])
    proof = prove(hierarchical(), sum(groups), topology=topology)
    assert proof.fault is None
    assert proof.proved
    assert proof.in_place
    assert proof.bit_identical
    assert proof.rank_order


def test_interleaved_nodes_and_three_of_them() -> None:
    proof = prove(hierarchical(), 7, topology=Topology((0, 1, 2, 0, 1, 2, 0)))
    assert proof.proved
    assert not proof.rank_order


def test_a_part_inside_a_part() -> None:
    def allreduce(p: Problem) -> Iterator[Any]:
        outer = p.sub(range(p.size - 1, -1, -1))
        inner = outer.sub(range(p.size), range(p.chunks), collective="reduce_scatter")
        steps = part(recursive_halving.reduce_scatter(inner), inner, lane=1)
        yield from part(steps, outer, lane=1)
        back = p.sub(range(p.size - 1, -1, -1), range(p.chunks), collective="allgather")
        yield from part(ring.allgather(back), back, lane=3)

    for size in range(1, 7):
        assert prove(make("allreduce", allreduce, lambda p: p.size), size).proved


def two_parts(p: Problem, lanes: tuple[int, int]) -> Iterator[Any]:
    """Two rings at once, on a chunk each, whose messages meet on one pair of ranks."""
    left, right = (p.rank - 1) % p.size, (p.rank + 1) % p.size

    def around(sub: Problem) -> Iterator[Any]:
        yield send(right, src(0)), recv(left, tmp(0))
        yield fold(0, [tmp(0), src(0)] if p.rank else [0, tmp(0)])

    parts = [p.sub(range(p.size), chunk_ids=[c]) for c in (0, 1)]
    runs = [part(around(s), s, lane=k) for s, k in zip(parts, lanes, strict=True)]
    # The second part is sent first and received last.
    for first, second in zip(*runs, strict=True):
        sends = [op for op in second if isinstance(op, Send)]
        rest = [op for op in second if not isinstance(op, Send)]
        yield sends, first, rest


@pytest.mark.parametrize("lanes", [(1, 2), (1, 1)])
def test_lanes_keep_the_messages_of_two_parts_apart(lanes: tuple[int, int]) -> None:
    def allreduce(p: Problem) -> Iterator[Any]:
        yield from two_parts(p, lanes)

    proof = prove(make("allreduce", allreduce, lambda p: 2), 2)
    assert proof.proved is (lanes[0] != lanes[1])
    if not proof.proved:
        assert proof.kind == "mis-sized message"


def test_temporary_space_of_two_parts_is_apart() -> None:
    def broadcast(p: Problem) -> Iterator[Any]:
        sub = p.sub(range(p.size))
        yield from part(iter([copy(tmp(0), src(0))] if p.rank == p.root else []), sub, lane=1)
        yield from part(iter([copy(0, tmp(0))] if p.rank == p.root else []), sub, lane=2)

    assert prove(make("broadcast", broadcast, lambda p: 1), 1).kind == "nothing there"


def test_a_part_of_alltoall_translates_both_ends_of_a_chunk() -> None:
    def alltoall(p: Problem) -> Iterator[Any]:
        sub = p.sub(range(p.size - 1, -1, -1))
        yield from part(direct.alltoall(sub), sub, lane=1)

    assert prove(make("alltoall", alltoall, lambda p: 1), 5).proved


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"ranks": [1, 2]}, "rank 0 is not among"),
        ({"ranks": [0, 1, 1]}, "named twice"),
        ({"ranks": [0, 1], "owners": [0]}, "must name one of 2 ranks for each of 3 chunks"),
        ({"ranks": [0, 1], "owners": [0, 1, 2]}, "must name one of 2 ranks"),
        ({"ranks": [0, 1], "root": 2}, "root 2 is not one of 2 ranks"),
    ],
)
def test_sub_refuses(arguments: dict[str, Any], says: str) -> None:
    p = Problem("allreduce", 0, 4, chunks=3)
    with pytest.raises(ScheduleError, match=says):
        p.sub(**arguments)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (send(2, 0), "no rank 2 among the 2"),
        (send(-1, 0), "no rank -1 among the 2"),
        (send(1, 1), "no chunk 1 among the 1"),
        (recv(1, tmp(-1)), "no chunk -1 among the 1"),
    ],
)
def test_a_part_refuses_ranks_and_chunks_of_the_whole(step: Any, says: str) -> None:
    sub = Problem("allreduce", 0, 4, chunks=3).sub([0, 3], chunk_ids=[2])
    with pytest.raises(ScheduleError, match=says):
        list(part([step], sub))


# The registry.


def nothing(p: Problem) -> Iterator[Any]:
    """No steps."""
    yield ()


def test_a_name_is_registered_once(registry: dict[str, Algorithm]) -> None:
    algorithm("scan", name="once")(nothing)
    with pytest.raises(RegistryError, match=r"scan/once is registered twice: by .*test_schedule"):
        algorithm("scan", name="once")(nothing)
    algorithm("exscan", name="once")(nothing)


def test_an_unknown_collective_or_tunable_without_default_is_refused(
    registry: dict[str, Algorithm],
) -> None:
    with pytest.raises(RegistryError, match=r"no collective 'allreduse'.*allreduce"):
        algorithm("allreduse")(nothing)

    def loose(p: Problem, *, radix: int) -> Iterator[Any]:
        yield ()

    with pytest.raises(RegistryError, match="allreduce/loose: radix needs an int default"):
        algorithm("allreduce")(loose)


def test_an_unknown_name_gives_a_suggestion_and_what_there_is() -> None:
    with pytest.raises(RegistryError, match="did you mean allreduce/ring"):
        find("allreduce/rnig")
    with pytest.raises(RegistryError, match=r"allgather has: .*bruck, circulant, direct"):
        find("xyz", "allgather")
    with pytest.raises(RegistryError, match="must be written as collective/algorithm"):
        find("ring")
    with pytest.raises(ConfigError, match="unknown collective 'allred'"):
        find("ring", "allred")
    with pytest.raises(RegistryError, match="allgather/ring is no algorithm for allreduce"):
        find("allgather/ring", "allreduce")


def test_v_forms_are_served_by_their_base() -> None:
    assert find("ring", "allgatherv") is find("allgather/ring") is find("allgatherv/ring")
    assert find("allgather/ring", "allgatherv").collective == "allgather"
    assert collective_named("alltoallv").name == "alltoall"


def test_tunables_are_parsed() -> None:
    found = find("alltoall/bruck:radix=3")
    assert found.tunables == (("radix", 3),)
    assert found.spec == "alltoall/bruck:radix=3"
    assert found.full_name == "alltoall/bruck"
    assert find("bruck: radix = 4", "alltoall").tunables == (("radix", 4),)
    assert find("alltoall/bruck:").tunables == (("radix", 2),)
    for bad in ("radix", "radix=", "radix=x", "radix=2.5", "3"):
        with pytest.raises(RegistryError, match="name=integer"):
            find(f"alltoall/bruck:{bad}")
    with pytest.raises(RegistryError, match=r"has no tunable 'radx' \(it has: radix\)"):
        find("alltoall/bruck:radx=3")
    with pytest.raises(RegistryError, match="positive integer, not 0"):
        find("alltoall/bruck:radix=0")
    with pytest.raises(RegistryError, match="it has: none"):
        find("allreduce/ring:radix=2")


FILE = """
from hpcoll.schedule import algorithm, recv, send

@algorithm("broadcast", name="{name}")
def to_all(p):
    if p.rank == p.root:
        yield send([r for r in range(p.size) if r != p.root], 0)
    else:
        yield recv(p.root, 0)
"""


def test_a_file_outside_the_tree_is_loaded_once(
    registry: dict[str, Algorithm], tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE.format(name="mine"))
    (found,) = load_file(file)
    assert found.full_name == "broadcast/mine"
    assert str(file) in found.origin
    assert find("mine", "broadcast") is found
    assert prove(found, 5).proved
    assert load_file(str(file)) == [found]


def test_a_file_with_a_taken_name_leaves_nothing_and_can_be_mended(
    registry: dict[str, Algorithm], tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE.format(name="other") + FILE.format(name="binomial"))
    with pytest.raises(RegistryError, match=r"broadcast/binomial is registered twice.*mine\.py"):
        load_file(file)
    assert "broadcast/other" not in registry
    file.write_text(FILE.format(name="other"))
    importlib.invalidate_caches()
    assert [a.name for a in load_file(file)] == ["other"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "registers no algorithm: use the @algorithm decorator"),
        ("1 / 0\n", "can't be loaded: ZeroDivisionError"),
        ("def f(:\n", "can't be loaded: SyntaxError"),
        ("import no_such_module_here\n", "can't be loaded: ModuleNotFoundError"),
    ],
)
def test_a_file_that_can_not_be_loaded(
    registry: dict[str, Algorithm], tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    before = set(registry)
    for _ in range(2):
        with pytest.raises(RegistryError, match=says):
            load_file(file)
    assert set(registry) == before


def test_a_missing_file(registry: dict[str, Algorithm], tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="no file"):
        load_file(tmp_path / "absent.py")
    (tmp_path / "notes.txt").write_text("no Python")
    with pytest.raises(RegistryError, match=r"notes\.txt is not a Python file"):
        load_file(tmp_path / "notes.txt")


@pytest.fixture
def installed(
    registry: dict[str, Algorithm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder on the path that looks like an installed package with an entry point."""
    info = tmp_path / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hpcoll.algorithms]\nmine = third_party_algorithms\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry_module, "_loaded", False)
    yield tmp_path / "third_party_algorithms.py"
    sys.modules.pop("third_party_algorithms", None)


def test_an_entry_point_registers(installed: Path) -> None:
    installed.write_text(FILE.format(name="third_party"))
    assert prove(find("broadcast/third_party"), 4).proved


def test_a_broken_entry_point_is_named_each_time(installed: Path) -> None:
    installed.write_text("1 / 0\n")
    for _ in range(2):
        with pytest.raises(RegistryError, match="entry point mine = third_party_algorithms can't"):
            algorithms()


def test_the_digest_follows_the_source_file(registry: dict[str, Algorithm], tmp_path: Path) -> None:
    digests = []
    for name, helper in (("a", "1"), ("b", "1"), ("c", "2")):
        file = tmp_path / f"{name}.py"
        text = FILE.format(name="same")
        file.write_text(text + f"\nHELPER = {helper}\n")
        (found,) = load_file(file)
        digests.append(found.digest)
        del registry["broadcast/same"]
    assert digests[0] == digests[1] != digests[2]
    assert find("allreduce/native").digest == "native"


# Small things.


@given(st.sets(st.integers(0, 40)))
def test_rank_lists_name_exactly_the_ranks(ranks: set[int]) -> None:
    text = rank_list(sum(1 << r for r in ranks))
    named: set[int] = set()
    for run in text.split(", ") if ranks else []:
        first, _, last = run.partition("-")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == ranks


# In place, literally.


def run_literally(algorithm: Algorithm, size: int, root: int, *, aliased: bool) -> bool:
    """Run on memory as it would be, with sends that are buffered; whether the result is right."""
    problems = [algorithm.problem(r, size, root=root) for r in range(size)]
    schedules = [algorithm.steps(p) for p in problems]
    memories = [Memory(p, aliased=aliased) for p in problems]
    values: list[dict[Any, Any]] = [
        {m.source(c): ((p.rank, c),) for c in m.inputs}
        for m, p in zip(memories, problems, strict=True)
    ]
    mail: dict[Any, list[Any]] = {}
    at, sent = [0] * size, [False] * size

    def read(r: int, chunks: Any) -> list[Any]:
        return [values[r].get(memories[r].read(c)) for c in chunks]

    def complete(r: int, step: Step) -> bool:
        boxes = [
            mail.get((m.peer, r, m.lane), [])
            for op in step
            for m in ([op] if isinstance(op, Recv) else op.operands if isinstance(op, Fold) else [])
            if isinstance(m, (Recv, Incoming))
        ]
        if not all(boxes):
            return False
        writes = []
        for op in step:
            if isinstance(op, Recv):
                writes += zip(op.chunks, mail[op.peer, r, op.lane].pop(0), strict=True)
            elif isinstance(op, Copy):
                writes += zip(op.to, read(r, op.source), strict=True)
            elif isinstance(op, Fold):
                columns = [
                    mail[o.peer, r, o.lane].pop(0) if isinstance(o, Incoming) else read(r, o)
                    for o in op.operands
                ]
                writes += zip(
                    op.into, [sum(v, ()) for v in zip(*columns, strict=True)], strict=True
                )
        # One operation after the other: what the step reads late has been overwritten.
        for chunk, value in writes:
            values[r][memories[r].write(chunk)] = value
            memories[r].wrote(chunk)
        return True

    moved = True
    while moved:
        moved = False
        for r in range(size):
            while at[r] < len(schedules[r]):
                step = schedules[r][at[r]]
                if not sent[r]:
                    for op in step:
                        if isinstance(op, Send):
                            for peer in op.peers:
                                mail.setdefault((r, peer, op.lane), []).append(read(r, op.chunks))
                    sent[r] = moved = True
                if not complete(r, step):
                    break
                at[r] += 1
                sent[r], moved = False, True
    kind = COLLECTIVES[algorithm.collective]
    return all(
        sorted(values[p.rank].get(m.read(c)) or ()) == [(r, c) for r in kind.contributors(p, c)]
        for p, m in zip(problems, memories, strict=True)
        for c in kind.outputs(p)
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8])
def test_in_place_is_what_a_literal_run_gives(size: int) -> None:
    for found in algorithms():
        if found.native or found.refuses(found.problem(0, size)):
            continue
        rooted = COLLECTIVES[found.collective].rooted
        for root in range(size) if rooted else (0,):
            assert run_literally(found, size, root, aliased=False), found.full_name
            right = run_literally(found, size, root, aliased=True)
            proof = prove(found, size, roots=[root], topology=Topology.single_node(size))
            assert right is proof.in_place, found.full_name


def test_an_input_that_is_read_after_it_was_overwritten_is_not_right_in_place() -> None:
    def allreduce(p: Problem) -> Iterator[Any]:
        yield send(1 - p.rank, src(0)), recv(1 - p.rank, tmp(0))
        yield recv_reduce(1 - p.rank, 0), send(1 - p.rank)

    def late(p: Problem) -> Iterator[Any]:
        yield send(1 - p.rank, src(0)), recv(1 - p.rank, 0)
        yield fold(0, [src(0), 0] if p.rank == 0 else [0, src(0)])

    assert prove(make("allreduce", allreduce, lambda p: 1), 2).kind == "mis-sized message"
    proof = prove(make("allreduce", late, lambda p: 1), 2)
    assert proof.proved
    assert not proof.in_place
    assert not run_literally(make("allreduce", late, lambda p: 1), 2, 0, aliased=True)


@pytest.mark.parametrize("lane", [-1, 16, 99])
def test_a_lane_that_is_none_is_refused(lane: int) -> None:
    for operation in (send, recv, recv_reduce):
        with pytest.raises(ScheduleError, match=f"no lane {lane}"):
            operation(1, 0, lane=lane)
    assert as_step(send(1, 0, lane=15))
