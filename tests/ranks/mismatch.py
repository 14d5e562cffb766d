"""Ranks that disagree: the last rank makes another call than the rest, in many ways."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import noted, rank_and_size

import hpcoll

RANK, SIZE = rank_and_size()
LAST = SIZE - 1
LONG = np.ones(4 * SIZE, np.float32)
RING = {"x": LONG, "algorithm": "ring"}
TREE = {"x": np.ones(4, np.float32), "root": 0, "algorithm": "binomial"}
Call = tuple[str, dict[str, Any]]
CASES: dict[str, tuple[Call, Call]] = {
    "count": (("allreduce", RING), ("allreduce", {**RING, "x": np.ones(8 * SIZE, np.float32)})),
    "dtype": (("allreduce", RING), ("allreduce", {**RING, "x": LONG.astype(np.int32)})),
    "op": (("allreduce", RING), ("allreduce", {**RING, "op": "max"})),
    "algorithm": (("allreduce", RING), ("allreduce", {**RING, "algorithm": "recursive_doubling"})),
    "collective": (("allreduce", RING), ("reduce_scatter", RING)),
    "root": (("reduce", TREE), ("reduce", {**TREE, "root": LAST})),
    "order": (("allreduce", RING), ("allreduce", {**RING, "x": LONG.astype(np.int32)})),
    "two roots": (("broadcast", TREE), ("broadcast", {**TREE, "root": LAST})),
}


def make(comm: hpcoll.Communicator, call: Call, how: str) -> None:
    """Make a call in one of three ways."""
    collective, arguments = call[0], dict(call[1])
    x = arguments.pop("x")
    if how == "started":
        getattr(comm, "i" + collective)(x, **arguments).wait()
    elif how == "persistent":
        comm.plan(collective, x, **arguments)()
    else:
        getattr(comm, collective)(x, **arguments)


def disagree(comm: hpcoll.Communicator, what: str, when: str, how: str) -> None:
    """Let the last rank differ."""
    usual, odd = CASES[what]
    plans: list[tuple[Call, hpcoll.Plan]] = []
    if when == "hit":
        for call in (usual, odd):
            make(comm, call, "blocking")
            if how == "persistent":
                arguments = dict(call[1])
                plans.append((call, comm.plan(call[0], arguments.pop("x"), **arguments)))
    mine = [odd if RANK == LAST else usual]
    if what == "order":
        mine.append(usual if RANK == LAST else odd)
    case = f"{what} {when} {how}"
    for nth, call in enumerate(mine):
        with noted(f"{case} {nth}"):
            known = [plan for other, plan in plans if other is call]
            if known:
                known[0]()
            else:
                make(comm, call, how)
    with noted(f"{case} after"):
        total = comm.allreduce(np.full(3, RANK + 1.0))
        if not np.all(total == SIZE * (SIZE + 1) / 2):
            raise ArithmeticError(str(total))
    with noted(f"{case} close"):
        comm.close()


def main() -> None:
    """All cases, each with a communicator of its own."""
    for what in CASES:
        for how in ("blocking", "started", "persistent"):
            for when in ("miss", "hit"):
                if how == "blocking" or what == "count":
                    disagree(hpcoll.Communicator(), what, when, how)


main()
