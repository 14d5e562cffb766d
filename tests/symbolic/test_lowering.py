"""The recipes of all ranks, run in one process, give what NumPy gives."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hpcoll.runtime.layout import Counts, layout_of
from hpcoll.runtime.lowering import lower
from hpcoll.runtime.recipe import (
    DIVIDE,
    DST,
    EXTRA,
    FIRST,
    FOLD,
    LANE,
    MOVE,
    NBYTES,
    NDST,
    NSRC,
    OP,
    PEER,
    RECV,
    SCRATCH,
    SEND,
    SRC,
    WAIT,
    Recipe,
)
from hpcoll.schedule import Algorithm, Problem
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.registry import algorithms
from hpcoll.schedule.topology import Topology

REAL = [a for a in algorithms() if not a.native]
ITEM = 8
POISON = -(10**15)


class Rank:
    """One rank's memory and recipe."""

    def __init__(self, recipe: Recipe, source: np.ndarray, target: np.ndarray) -> None:
        self.recipe = recipe
        scratch = np.full(recipe.scratch_nbytes // ITEM + 1, POISON, np.int64)
        self.memory = {SRC: source, DST: target, SCRATCH: scratch}
        self.posted = 0

    def piece(self, operand: Any, nbytes: int) -> np.ndarray:
        base, offset = map(int, operand)
        assert offset % ITEM == nbytes % ITEM == 0
        assert offset >= 0
        assert offset + nbytes <= self.memory[base].nbytes
        return self.memory[base][offset // ITEM : (offset + nbytes) // ITEM]

    def run(self, rank: int, mail: dict[Any, tuple[list[Any], list[Any]]]) -> Iterator[None]:
        """Run the rows; stop wherever the rank waits."""
        for row in self.recipe.rows.tolist():
            nbytes, first, nsrc = row[NBYTES], row[FIRST], row[NSRC]
            operands = self.recipe.operands[first : first + nsrc + row[NDST]]
            pieces = [self.piece(o, nbytes) for o in operands]
            if row[OP] == MOVE:
                pieces[1][:] = pieces[0].copy()
            elif row[OP] == FOLD:
                pieces[-1][:] = np.sum(pieces[:-1], axis=0)
            elif row[OP] == DIVIDE:
                pieces[-1][:] //= row[EXTRA]
            elif row[OP] in (SEND, RECV):
                source, target = (rank, row[PEER]) if row[OP] == SEND else (row[PEER], rank)
                ends = mail.setdefault((source, target, row[LANE]), ([], []))
                ends[row[OP] == RECV].append((self, pieces[0]))
                self.posted += 1
            else:
                assert row[OP] == WAIT
                while self.posted:
                    yield


def run_all(ranks: list[Rank], seed: int) -> None:
    """Run all ranks; messages are copied as late as they may be, in any order."""
    shuffle = random.Random(seed)
    mail: dict[Any, tuple[list[Any], list[Any]]] = {}
    running = {r: rank.run(r, mail) for r, rank in enumerate(ranks)}
    while running:
        for r in list(running):
            if not ranks[r].posted and next(running[r], "ended") == "ended":
                del running[r]
        matched = [key for key, (sends, recvs) in mail.items() if sends and recvs]
        assert matched or not any(ranks[r].posted for r in running), "deadlock"
        if matched:
            sends, recvs = mail[shuffle.choice(matched)]
            (sender, data), (receiver, room) = sends.pop(0), recvs.pop(0)
            assert data.size == room.size
            room[:] = data
            sender.posted -= 1
            receiver.posted -= 1
    assert not any(sends or recvs for sends, recvs in mail.values())


def counts_of(p: Problem, seed: int) -> Counts:
    """Elements of each block, some of them none."""
    draw = random.Random(seed)
    some = [draw.choice([0, 1, 2, 7, 40]) for _ in range(p.size)]
    if p.collective == "alltoall":
        return tuple(tuple(draw.choice([0, 1, 3]) for _ in range(p.size)) for _ in range(p.size))
    if COLLECTIVES[p.collective].owned:
        return tuple(some)
    return (sum(some) + seed,)


def expected(p: Problem, inputs: list[np.ndarray], counts: Counts) -> np.ndarray | None:
    """The output of one rank; None where it has none."""
    if p.collective == "alltoall":
        offsets = [np.concatenate([[0], np.cumsum(row)]) for row in counts]
        parts = [x[o[p.rank] : o[p.rank + 1]] for x, o in zip(inputs, offsets, strict=True)]
        return np.concatenate(parts)
    ends = np.concatenate([[0], np.cumsum(counts)])
    mine = slice(ends[p.rank], ends[p.rank + 1]) if COLLECTIVES[p.collective].owned else slice(0)
    match p.collective:
        case "allreduce":
            return np.sum(inputs, axis=0)
        case "reduce":
            return np.sum(inputs, axis=0) if p.rank == p.root else None
        case "reduce_scatter":
            return np.sum(inputs, axis=0)[mine]
        case "scan":
            return np.sum(inputs[: p.rank + 1], axis=0)
        case "exscan":
            return np.sum(inputs[: p.rank], axis=0) if p.rank else None
        case "broadcast":
            return inputs[p.root]
        case "scatter":
            return inputs[p.root][mine]
        case "allgather":
            return np.concatenate(inputs)
        case "gather":
            return np.concatenate(inputs) if p.rank == p.root else None
    return None


def in_place_at(p: Problem, counts: Counts) -> int:
    """Where, in elements, the smaller array lies in the larger one in an in-place call."""
    if p.collective in ("allgather", "gather", "reduce_scatter", "scatter"):
        return sum(counts[: p.rank])  # type: ignore[arg-type]
    return 0


def check(algorithm: Algorithm, size: int, topology: Topology, *, aliased: bool, seed: int) -> None:
    root = seed % size if COLLECTIVES[algorithm.collective].rooted else 0
    problem = algorithm.problem(0, size, root=root, topology=topology)
    if algorithm.refuses(problem) is not None:
        return
    counts = counts_of(problem, seed)
    if aliased and algorithm.collective == "alltoall":
        counts = tuple(tuple(3 for _ in range(size)) for _ in range(size))
    layouts = [layout_of(problem.at(r), counts, 1, ITEM) for r in range(size)]
    inputs = [
        np.arange(1, at.src_nbytes // ITEM + 1, dtype=np.int64) * (size + 1) + 1000 * r
        for r, at in enumerate(layouts)
    ]
    ranks = []
    for r, at in enumerate(layouts):
        p = problem.at(r)
        source, n = inputs[r].copy(), at.dst_nbytes // ITEM
        target = np.full(n, POISON, np.int64)
        alias = aliased and bool(n) and bool(source.size)
        if alias:
            begin = in_place_at(p, counts)
            if source.size >= n:
                target = source[begin : begin + n]
            else:
                target[begin : begin + source.size] = source
                source = target[begin : begin + source.size]
        ranks.append(Rank(lower(algorithm, p, at, aliased=alias), source, target))
    run_all(ranks, seed)
    for r, rank in enumerate(ranks):
        want = expected(problem.at(r), inputs, counts)
        if want is not None and rank.memory[DST].size:
            np.testing.assert_array_equal(rank.memory[DST], want, f"rank {r} of {size}")
        if not aliased:
            np.testing.assert_array_equal(rank.memory[SRC], inputs[r], f"input of rank {r}")


@pytest.mark.parametrize("aliased", [False, True], ids=["apart", "in place"])
@pytest.mark.parametrize("algorithm", REAL, ids=lambda a: a.full_name)
def test_recipes_of_all_ranks(algorithm: Algorithm, aliased: bool) -> None:
    for size in (1, 2, 3, 4, 5, 6, 7, 8, 9, 16):
        placed = [Topology.single_node(size)]
        if algorithm.parts:
            placed += [Topology.blocks(size, 2), Topology([r * r % 3 for r in range(size)])]
        for seed, topology in enumerate(placed, start=size):
            check(algorithm, size, topology, aliased=aliased, seed=seed)
