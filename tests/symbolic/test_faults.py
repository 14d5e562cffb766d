"""Every kind of fault is found and named, in small schedules and in mutants of real ones."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from hpcoll.schedule import (
    Algorithm,
    Problem,
    copy,
    fold,
    incoming,
    recv,
    recv_reduce,
    send,
    src,
    tmp,
)
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.operations import Copy, Fold, Recv, Send, Step
from hpcoll.schedule.registry import algorithms
from hpcoll.schedule.simulate import Simulation
from hpcoll.schedule.symbols import Symbols
from hpcoll.schedule.verify import prove

Generator = Callable[..., Iterator[Any]]


def make(collective: str, function: Generator, chunks: int | None = None) -> Algorithm:
    """An algorithm that is in no registry."""
    owned = COLLECTIVES[collective].owned
    return Algorithm(
        collective,
        function.__name__,
        function,
        lambda p: chunks if chunks is not None else p.size if owned else 1,
        lambda p: None,
    )


def fault_of(collective: str, function: Generator, size: int, chunks: int | None = None) -> str:
    """Kind and text of the fault that the proof finds."""
    proof = prove(make(collective, function, chunks), size)
    assert proof.fault is not None
    assert not proof.proved
    assert f"at {size} ranks" in proof.fault
    return f"{proof.kind} | {proof.fault}"


# Each: collective, ranks, chunks, what the message must say, and the schedule.
PLANTED: list[tuple[str, int, int | None, list[str], Generator]] = []


def planted(collective: str, size: int, *says: str, chunks: int | None = None) -> Any:
    def keep(function: Generator) -> Generator:
        PLANTED.append((collective, size, chunks, list(says), function))
        return function

    return keep


@planted("allreduce", 2, "deadlock |", "rank 0 step 0 waits for a message from rank 1")
def both_receive_first(p: Problem) -> Iterator[Any]:
    yield recv(1 - p.rank, tmp(0))
    yield send(1 - p.rank, src(0))


@planted("allreduce", 2, "needs buffering |", "rank 0 step 0 waits to send to rank 1")
def both_send_first(p: Problem) -> Iterator[Any]:
    yield send(1 - p.rank, 0)
    yield recv_reduce(1 - p.rank, 0, first=p.rank == 1)


@planted("broadcast", 3, "unmatched send |", "root 0", "rank 0 step 0: sends to rank 2")
def sent_to_no_one(p: Problem) -> Iterator[Any]:
    if p.rank == p.root:
        yield send([r for r in range(p.size) if r != p.root], 0)
    elif p.rank != 2:
        yield recv(p.root, 0)


@planted("broadcast", 2, "unmatched receive |", "rank 1 step 1: waits for a message from rank 0")
def received_from_no_one(p: Problem) -> Iterator[Any]:
    if p.rank == p.root:
        yield send(1 - p.root, 0)
    else:
        yield recv(p.root, 0)
        yield recv(p.root, 0)


@planted("broadcast", 2, "unmatched receive |", "from rank 0 on lane 1")
def wrong_lane(p: Problem) -> Iterator[Any]:
    if p.rank == p.root:
        yield send(1 - p.root)
        yield send(1 - p.root, 0, lane=2)
    else:
        yield recv(p.root)
        yield recv(p.root, 0, lane=1)


@planted(
    "allgather", 2, "mis-sized message |", "step 0: expects chunk 1, but rank 0 step 0 sent chunk 0"
)
def other_chunk(p: Problem) -> Iterator[Any]:
    yield send(1 - p.rank, p.rank), recv(1 - p.rank, p.rank)


@planted(
    "broadcast", 2, "mis-sized message |", "expects chunks 0, 1, but", "sent chunk 0", chunks=2
)
def too_short(p: Problem) -> Iterator[Any]:
    if p.rank == p.root:
        yield send(1 - p.root, 0)
    else:
        yield recv(p.root, 0, 1)


@planted(
    "allreduce", 1, "mis-sized operand |", "rank 0 step 0: copies chunk 0 into chunk 1", chunks=2
)
def copied_to_another(p: Problem) -> Iterator[Any]:
    yield copy(1, 0)


@planted(
    "allreduce", 2, "chunk out of range |", "rank 0 step 0", "chunk 4", "chunks 0..3", chunks=4
)
def chunk_too_high(p: Problem) -> Iterator[Any]:
    yield send(1 - p.rank, 4), recv_reduce(1 - p.rank, 0)


@planted("allreduce", 2, "chunk out of range |", "rank 0 step 0", "chunk -1", chunks=4)
def chunk_below(p: Problem) -> Iterator[Any]:
    yield send(1 - p.rank, 0), recv_reduce(1 - p.rank, -1)


@planted("alltoall", 2, "chunk out of range |", "chunk 1", "(source, destination)")
def chunk_no_pair(p: Problem) -> Iterator[Any]:
    yield send(1 - p.rank, 0), recv(1 - p.rank, 1)


@planted("broadcast", 2, "chunk out of range |", "[0, 1], which is not one chunk", chunks=2)
def chunk_a_list(p: Problem) -> Iterator[Any]:
    if p.rank == p.root:
        yield send(1 - p.root, [0, 1])  # type: ignore[arg-type]


@planted("allreduce", 2, "write to the input |", "rank 0 step 0", "src(0)", "read-only")
def input_written(p: Problem) -> Iterator[Any]:
    yield send(1 - p.rank, 0), recv(1 - p.rank, src(0))


@planted("alltoall", 3, "message to itself |", "rank 0 step 1", "use copy")
def own_chunk_sent(p: Problem) -> Iterator[Any]:
    yield ()
    for k in range(p.size):
        yield send(k, (p.rank, k)), recv(k, (k, p.rank))


@planted("broadcast", 4, "no such rank |", "rank 0 step 0: names rank 4", "0..3")
def rank_too_high(p: Problem) -> Iterator[Any]:
    if p.rank == p.root:
        yield send(4, 0)


@planted("broadcast", 4, "no such rank |", "names rank -1")
def rank_below(p: Problem) -> Iterator[Any]:
    if p.rank != p.root:
        yield recv(-1, 0)
    else:
        yield send([1, 2, 3], 0)


@planted("broadcast", 4, "peer named twice |", "rank 0 step 0", "[1, 2, 2]")
def rank_twice(p: Problem) -> Iterator[Any]:
    if p.rank == p.root:
        yield send([1, 2, 2], 0)


@planted("reduce", 3, "race |", "rank 0 step 0: chunk 0 is written twice")
def two_receives_into_one(p: Problem) -> Iterator[Any]:
    if p.rank == p.root:
        yield [recv_reduce(r, 0) for r in range(p.size) if r != p.root]
    else:
        yield send(p.root, 0)


@planted("reduce", 2, "race |", "rank 0 step 0: one operation of the step reads chunk 0")
def read_and_written(p: Problem) -> Iterator[Any]:
    if p.rank == p.root:
        yield recv(1 - p.rank, 0), copy(tmp(0), 0)
    else:
        yield send(p.root, 0)


@planted("allreduce", 1, "race |", chunks=2)
def swapped_in_one_operation(p: Problem) -> Iterator[Any]:
    yield fold([0, 1], [[1, 0]])


@planted("allreduce", 1, "nothing there |", "rank 0 step 0: folds nothing into chunk 0")
def empty_fold(p: Problem) -> Iterator[Any]:
    yield fold(0, [])


@planted("broadcast", 3, "nothing there |", "rank 1 step 0: sends chunk 0", "no earlier step")
def forwarded_too_early(p: Problem) -> Iterator[Any]:
    if p.rank == 0:
        yield send(1, 0)
    if p.rank == 1:
        yield send(2, 0), recv(0, 0)
    if p.rank == 2:
        yield recv(1, 0)


@planted("broadcast", 2, "nothing there |", "src(0)", "this rank's input doesn't hold")
def input_of_another(p: Problem) -> Iterator[Any]:
    if p.rank != p.root:
        yield copy(0, src(0))


@planted(
    "reduce",
    3,
    "wrong result |",
    "rank 0 step 0: chunk 0 (last written in step 0) ends as chunk 0 reduced over ranks 0-1, "
    "not as chunk 0 reduced over ranks 0-2; missing: rank 2",
)
def one_missing(p: Problem) -> Iterator[Any]:
    if p.rank == p.root:
        yield recv_reduce(1, 0)
    elif p.rank == 1:
        yield send(p.root, 0)


@planted("reduce", 2, "wrong result |", "reduced over ranks 0-1 (more than once: rank 1)")
def one_twice(p: Problem) -> Iterator[Any]:
    for _ in range(2):
        yield recv_reduce(1 - p.rank, 0) if p.rank == p.root else send(p.root, 0)


@planted(
    "exscan", 2, "wrong result |", "rank 1 step 0", "not as chunk 0 of rank 0; not wanted: rank 1"
)
def one_too_many(p: Problem) -> Iterator[Any]:
    yield send(1, 0) if p.rank == 0 else recv_reduce(0, 0, first=True)


@planted("gather", 3, "wrong result |", "chunk 2 (never written) ends as nothing")
def one_block_lost(p: Problem) -> Iterator[Any]:
    if p.rank == p.root and p.root == 0 and p.owned(1) == (1,):
        yield recv(1, 1)
    elif p.rank == 1 and p.root == 0 and p.owned(1) == (1,):
        yield send(0, 1)


@planted("barrier", 3, "wrong result |", "rank 0: leaves the barrier", "heard from rank 1")
def half_a_barrier(p: Problem) -> Iterator[Any]:
    yield send((p.rank + 1) % p.size), recv((p.rank - 1) % p.size)


@planted("broadcast", 2, "error |", "rank 0/2", "step 200001", "does it ever end?")
def endless(p: Problem) -> Iterator[Any]:
    while True:
        yield ()


@planted("broadcast", 3, "error |", "rank 2/3 broadcast/fails step 1: ZeroDivisionError")
def fails(p: Problem) -> Iterator[Any]:
    yield ()
    if p.rank == 2:
        1 // 0  # noqa: B018


@planted("broadcast", 2, "error |", "gave None", "must yield")
def no_generator(p: Problem) -> Any:
    send(1, 0)


@planted("broadcast", 2, "error |", "rank 0/2 broadcast/yields_text step 0", "'send'")
def yields_text(p: Problem) -> Iterator[Any]:
    yield "send"


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case[4].__name__)
def test_planted_fault(case: tuple[str, int, int | None, list[str], Generator]) -> None:
    collective, size, chunks, says, function = case
    text = fault_of(collective, function, size, chunks)
    for part in says:
        assert part in text


def test_chunks_or_when_that_fail_are_faults() -> None:
    def nothing(p: Problem) -> Iterator[Any]:
        yield ()

    base = make("allreduce", nothing)
    assert "chunks failed" in str(prove(replace(base, chunks=lambda p: 1 // 0), 2).fault)
    assert "chunks gave 0" in str(prove(replace(base, chunks=lambda p: 0), 2).fault)
    assert "chunks gave 'x'" in str(prove(replace(base, chunks=lambda p: "x"), 2).fault)
    assert "when failed" in str(prove(replace(base, when=lambda p: 1 // 0), 2).fault)
    assert "when gave True" in str(prove(replace(base, when=lambda p: True), 2).fault)
    owned = make("allgather", nothing, chunks=3)
    assert "3 chunks can't be shared by 2 ranks" in str(prove(owned, 2).fault)


@pytest.mark.parametrize("bad", ["size", "root", "owners", "operator"])
def test_a_fault_in_one_setting_only_is_found(bad: str) -> None:
    def reduce_scatter(p: Problem) -> Iterator[Any]:
        wrong = {
            "size": p.size == 5,
            "root": False,
            "owners": len(p.owned(p.rank)) > 2,
            "operator": not p.commutes,
        }[bad]
        others = [r for r in range(p.size) if r != p.rank]
        mine = p.owned(p.rank)
        kept = mine[:-1] if wrong and p.rank == p.size - 1 else mine
        operands = [incoming(r) if r != p.rank else list(mine) for r in range(p.size)]
        yield [send(r, *p.owned(r)) for r in others], fold(list(kept), operands)

    def broadcast(p: Problem) -> Iterator[Any]:
        if p.rank == p.root:
            yield send([r for r in range(p.size) if r not in (p.root, 6 if p.root == 3 else -1)], 0)
        else:
            yield recv(p.root, 0)

    if bad == "root":
        found = [prove(make("broadcast", broadcast), size).fault for size in (6, 7)]
        assert "root 3" in str(found[1])
    else:
        found = [prove(make("reduce_scatter", reduce_scatter), size).fault for size in (4, 5)]
        says = {"size": "5 ranks", "owners": "owned by ranks", "operator": "doesn't commute"}[bad]
        assert says in str(found[1])
    if bad in ("size", "root"):
        assert found[0] is None


def test_g10_a_message_to_itself_is_refused_with_its_step() -> None:
    text = fault_of("alltoall", own_chunk_sent, 4)
    assert "message to itself: rank 0 step 1" in text


def test_g11_a_deadlock_is_refused_and_its_cycle_named() -> None:
    def three(p: Problem) -> Iterator[Any]:
        yield send((p.rank + 1) % p.size)
        yield recv((p.rank - 1) % p.size)

    def one_step(p: Problem) -> Iterator[Any]:
        yield recv_reduce(1 - p.rank, 0, first=p.rank == 1), send(1 - p.rank, 0)

    text = fault_of("allreduce", both_receive_first, 2)
    assert text.startswith("deadlock |")
    assert "rank 0 step 0 waits for a message from rank 1; rank 1 step 0 waits" in text
    assert fault_of("allreduce", both_send_first, 2).startswith("needs buffering |")
    ring = fault_of("barrier", three, 3)
    assert ring.startswith("needs buffering |")
    for a, b in ((0, 1), (1, 2), (2, 0)):
        assert f"rank {a} step 0 waits to send to rank {b}" in ring
    assert prove(make("allreduce", one_step), 2).proved


def test_g13_bad_chunks_are_refused_with_step_rank_and_chunk() -> None:
    assert "rank 0 step 0: sends: chunk 4 is out of range" in fault_of(
        "allreduce", chunk_too_high, 2, 4
    )
    assert "rank 0 step 0: chunk -1 is out of range" in fault_of("allreduce", chunk_below, 2, 4)
    assert "rank 1 step 0: sends chunk 0" in fault_of("broadcast", forwarded_too_early, 3)
    assert "rank 0 step 0: chunk 0 is written twice" in fault_of("reduce", two_receives_into_one, 3)
    assert "more than once: rank 1" in fault_of("reduce", one_twice, 2)


def test_g15_an_unknown_rank_is_no_deadlock_and_an_idle_one_is_allowed() -> None:
    def idle(p: Problem) -> Iterator[Any]:
        if len(p.owned(p.rank)) and p.rank != p.root:
            yield recv(p.root, *p.owned(p.rank))
        elif p.rank == p.root:
            yield [send(r, *p.owned(r)) for r in range(p.size) if r != p.root and p.owned(r)]

    assert fault_of("broadcast", rank_too_high, 4).startswith("no such rank |")
    assert fault_of("broadcast", rank_below, 4).startswith("no such rank |")
    assert fault_of("broadcast", rank_twice, 4).startswith("peer named twice |")
    assert prove(make("scatter", idle), 4).proved


# Mutants of the real algorithms.

Change = Callable[[Problem, list[Step]], list[Any]]
REAL = [a for a in algorithms() if not a.native]


def mutant(base: Algorithm, change: Change) -> Algorithm:
    """The algorithm with the steps of each rank changed."""

    def function(p: Problem, **tunables: int) -> Iterator[Any]:
        yield from change(p, base.steps(p))

    return replace(base, function=function)


def outputs(p: Problem) -> list[Any]:
    return list(COLLECTIVES[p.collective].outputs(p))


def renamed(step: Step, name: Callable[[Any], Any]) -> Step:
    """The step with the chunks that it writes renamed."""
    changed: list[Any] = []
    for op in step:
        if isinstance(op, Recv):
            changed.append(op._replace(chunks=tuple(map(name, op.chunks))))
        elif isinstance(op, Fold):
            changed.append(op._replace(into=tuple(map(name, op.into))))
        else:
            changed.append(op)
    return tuple(changed)


def shifted(p: Problem) -> Callable[[Any], Any]:
    def name(chunk: Any) -> Any:
        if isinstance(chunk, int):
            return chunk + 1
        return chunk if chunk[0] == "tmp" else (chunk[0], (chunk[1] + 1) % p.size)

    return name


def one_rank(change: Change) -> Change:
    """Only the last rank that has something to lose is changed."""
    return lambda p, steps: change(p, steps) if p.rank == p.size - 1 else steps


def rearranged(p: Problem, order: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Steps that put the outputs in another order."""
    held = outputs(p)
    return [
        [copy(tmp(a, "moved"), b) for a, b in zip(held, order(held), strict=True)],
        [copy(a, tmp(a, "moved")) for a in held],
    ]


MUTATIONS: dict[str, Change] = {
    "input returned": lambda p, steps: [],
    "tail dropped": lambda p, steps: steps[:-1],
    "tail dropped on one rank": one_rank(lambda p, steps: steps[:-1]),
    "first step dropped": lambda p, steps: steps[1:],
    "off by one chunk": lambda p, steps: [renamed(s, shifted(p)) for s in steps],
    "last message twice": one_rank(lambda p, steps: [*steps, steps[-1]]),
    "chunks of messages reversed": lambda p, steps: [
        tuple(o._replace(chunks=o.chunks[::-1]) if isinstance(o, Send) else o for o in s)
        for s in steps
    ],
    "blocks swapped": lambda p, steps: [
        *steps, *rearranged(p, lambda held: [*held[1::-1], *held[2:]])
    ],
    "order reversed": lambda p, steps: [*steps, *rearranged(p, lambda held: held[::-1])],
    "rank 0 twice": lambda p, steps: [
        *steps,
        *(
            [fold(c, [c, c]) for c in outputs(p)[:1]]
            if COLLECTIVES[p.collective].reduces
            else rearranged(p, lambda held: [held[0] if held else None, *held][: len(held)])
        ),
    ],
}  # fmt: skip


def applies(name: str, algorithm: Algorithm, size: int) -> bool:
    """Whether the mutation changes what the schedule does."""
    problems = [algorithm.problem(r, size) for r in range(size)]
    steps = [algorithm.steps(p) for p in problems]
    several = any(len(outputs(p)) > 1 for p in problems)
    last = steps[size - 1]
    match name:
        case "blocks swapped" | "order reversed":
            return several
        case "rank 0 twice":
            return several or COLLECTIVES[algorithm.collective].reduces
        case "chunks of messages reversed":
            return any(
                isinstance(op, Send) and len(op.chunks) > 1 for s in steps for t in s for op in t
            )
        case "off by one chunk":
            return any(
                isinstance(op, (Recv, Fold)) and _writes(op) for s in steps for t in s for op in t
            )
        case "first step dropped":
            return not all(isinstance(op, Copy) for s in steps for t in s[:1] for op in t)
        case "tail dropped on one rank" | "last message twice":
            return bool(last)
    return True


def _writes(op: Recv | Fold) -> tuple[Any, ...]:
    return op.chunks if isinstance(op, Recv) else op.into


def served(algorithm: Algorithm, sizes: tuple[int, ...]) -> list[int]:
    return [n for n in sizes if algorithm.refuses(algorithm.problem(0, n)) is None]


MUTANTS = [
    pytest.param(name, algorithm, size, id=f"{name}-{algorithm.full_name}-{size}")
    for name in MUTATIONS
    for algorithm in REAL
    for size in served(algorithm, (4, 5))
    if applies(name, algorithm, size)
]


@pytest.mark.parametrize(("name", "algorithm", "size"), MUTANTS)
def test_f12_every_mutant_fails(name: str, algorithm: Algorithm, size: int) -> None:
    assert prove(algorithm, size).proved
    assert prove(mutant(algorithm, MUTATIONS[name]), size).fault


def test_f12_each_mutation_is_tried_in_each_collective_that_it_can_break() -> None:
    for name in MUTATIONS:
        reached = {a.collective for a in REAL if applies(name, a, 4)}
        missing = set(COLLECTIVES) - reached
        # One output chunk can't be misplaced, and a barrier has none.
        allowed: dict[str, set[str]] = {
            "blocks swapped": {
                "broadcast",
                "reduce",
                "scan",
                "exscan",
                "reduce_scatter",
                "scatter",
            },
            "chunks of messages reversed": {"broadcast", "reduce", "scan", "exscan"},
            "rank 0 twice": {"broadcast", "scatter"},
        }
        allowed["order reversed"] = allowed["blocks swapped"]
        assert missing <= allowed.get(name, set()) | {"barrier"}, name


MISPLACED = [
    m for m in MUTANTS if m.values[0] in ("blocks swapped", "order reversed", "rank 0 twice")
]


@pytest.mark.parametrize(("name", "algorithm", "size"), MISPLACED)
def test_f12_misplaced_blocks_of_equal_size_are_found_by_their_values(
    name: str, algorithm: Algorithm, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcoll.schedule.simulate.same_sizes", lambda a, b: len(a) == len(b))
    assert prove(mutant(algorithm, MUTATIONS[name]), size).kind == "wrong result"


@pytest.mark.parametrize("algorithm", REAL, ids=lambda a: a.full_name)
def test_f12_no_step_of_any_rank_can_be_lost(algorithm: Algorithm) -> None:
    for size in served(algorithm, (2, 3, 4, 5, 7)):
        for rank in range(size):
            for at, step in enumerate(algorithm.steps(algorithm.problem(rank, size))):
                if all(isinstance(op, Copy) and op.to == op.source for op in step):
                    continue  # puts an input where the output is: it is read in either place
                lost = mutant(
                    algorithm,
                    lambda p, steps, rank=rank, at=at: (  # type: ignore[misc]
                        steps[:at] + steps[at + 1 :] if p.rank == rank else steps
                    ),
                )
                assert prove(lost, size, roots=(0,)).fault, f"step {at} of rank {rank}/{size}"


def test_what_was_not_written_is_nothing_and_not_the_input() -> None:
    p = make("gather", one_block_lost).problem(0, 2)
    trace = Simulation([p, p.at(1)], [[], []], Symbols()).run()
    assert trace.held[0].get(1) is None
