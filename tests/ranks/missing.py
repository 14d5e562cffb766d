"""Ranks that refuse, come late, stay away or have ended. The argument says which."""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any

import numpy as np
from common import flag, noted, rank_and_size, say, wait_flag

import hpcoll
from hpcoll import config

RANK, SIZE = rank_and_size()
LAST = SIZE - 1
X = np.ones(4 * SIZE, np.float32)


def show(message: Any, *_: Any, **__: Any) -> None:
    """Note a warning."""
    say("warning", text=str(message))


def impatient(warn_s: float, timeout_s: float) -> hpcoll.Communicator:
    """A communicator with short limits, made when all ranks have started and loaded."""
    hpcoll.Communicator().barrier()
    os.environ |= {"HPCOLL_WARN_S": str(warn_s), "HPCOLL_TIMEOUT_S": str(timeout_s)}
    config.settings.cache_clear()
    return hpcoll.Communicator()


def refuse() -> None:
    """The last rank has a read-only output, on a miss and then on a hit."""
    comm = hpcoll.Communicator()
    for when in ("miss", "hit"):
        out = np.empty_like(X)
        out.flags.writeable = RANK != LAST
        with noted(when):
            comm.allreduce(X, out=out, algorithm="ring")
        comm_ok = np.empty_like(X)
        with noted(f"after {when}"):
            comm.allreduce(X, out=comm_ok, algorithm="ring")
    say("end")


def missing() -> None:
    """Rank 1 stays away from a cached ring; its neighbours wait in a chain."""
    comm = impatient(1, 3)
    comm.allreduce(X, algorithm="ring")
    started = comm.iallreduce(X, algorithm="ring")
    started.wait()
    start = time.monotonic()
    if RANK == 1:
        time.sleep(4.5)
    with noted("missing"):
        comm.allreduce(X, algorithm="ring")
    with noted("again"):
        comm.allreduce(X, algorithm="ring")
    say("ended", waited=time.monotonic() - start)
    if RANK != 1:
        wait_flag("rank1-seen")
    flag(f"rank{RANK}-seen")


def late_and_missing() -> None:
    """Rank 1 is late, then misses in other ways, each time on a new communicator."""
    comm = hpcoll.Communicator()
    parts = [comm.dup() for _ in range(4)]
    if RANK == 1:
        time.sleep(2.0)
    with noted("late"):
        total = comm.allreduce(X, algorithm="ring")
        assert np.all(total == SIZE)
    if RANK == 1:
        wait_flag("over")
        return
    with noted("agreeing"):
        comm.allreduce(X, algorithm="ring", op="max", timeout=1.0)
    with noted("plan"):
        parts[0].plan("allreduce", X, algorithm="ring", timeout=0.5)
    with noted("started"):
        request = parts[1].iallreduce(X, algorithm="recursive_doubling", timeout=0.5)
        request.wait()
    with noted("unusable"):
        parts[1].barrier()
    say("end")
    if RANK == LAST:
        wait_flag("rank0-over")
        flag("over")
    else:
        flag("rank0-over")


def groups() -> None:
    """Rank 1 misses a split, a dup, and the making of a communicator."""
    from mpi4py import MPI

    comm = impatient(30, 1)
    other = comm.dup()
    if RANK == 1:
        wait_flag("over")
        return
    with noted("split"):
        comm.split(0)
    with noted("dup"):
        other.dup()
    with noted("close"):
        other.close()
    with noted("communicator"):
        hpcoll.Communicator(MPI.COMM_WORLD)
    if RANK == LAST:
        wait_flag("rank0-over")
        flag("over")
    else:
        flag("rank0-over")


def ended() -> None:
    """Rank 1 has ended when the others call, on a miss and on a hit."""
    comm = hpcoll.Communicator()
    other = comm.dup()
    other.allreduce(X, algorithm="ring")
    if RANK == 1:
        say("end")
        return
    with noted("hit"):
        other.allreduce(X, algorithm="ring")
    with noted("miss"):
        comm.allreduce(X, algorithm="ring")
    say("end")


def computing() -> None:
    """Ranks 0 and 2 disagree while rank 1 computes; then all go on."""
    comm = hpcoll.Communicator()
    if RANK == 1:
        time.sleep(3.0)
    with noted("dispute"):
        comm.allreduce(X, algorithm="ring", op="max" if RANK == LAST else "sum")
    for turn in range(3):
        with noted(f"after {turn}"):
            total = comm.allreduce(X, algorithm="ring", op="sum")
            assert np.all(total == SIZE)
    with noted("close"):
        comm.close()


def late_dispute() -> None:
    """A rank that reported and then disagreed: what was said must not count later."""
    comm = hpcoll.Communicator()
    for turn in range(3):
        if turn % SIZE == RANK:
            time.sleep(0.5)
        with noted(f"dispute {turn}"):
            comm.allreduce(X, algorithm="ring", op="max" if RANK == LAST else "min")
        if RANK == LAST:
            time.sleep(0.5)
        out = np.empty_like(X)
        out.flags.writeable = RANK != 1
        with noted(f"refused {turn}"):
            comm.allreduce(X, out=out, op="prod")
        if RANK == 0:
            time.sleep(0.4)
        with noted(f"fine {turn}"):
            total = comm.allreduce(X, algorithm="ring", op="sum")
            assert np.all(total == SIZE)
    with noted("close"):
        comm.close()


warnings.showwarning = show
globals()[sys.argv[1]]()
