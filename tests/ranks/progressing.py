"""What advances when, and how communicators live and die. The argument says what."""

from __future__ import annotations

import gc
import signal
import sys
import time
from typing import Any

import numpy as np
from common import noted, rank_and_size, say

import hpcoll

RANK, SIZE = rank_and_size()
X = np.ones(4 * SIZE, np.float32)
LARGE = np.ones(1 << 20, np.float32)


def several() -> None:
    """Requests of two communicators, waited for in different orders on different ranks."""
    first = hpcoll.Communicator()
    second = first.dup()
    requests = []
    for turn in range(6):
        comm = (first, second)[turn % 2]
        requests.append(comm.iallreduce(LARGE * (turn + 1), algorithm="ring"))
    order = list(range(6))
    if RANK % 2:
        order.reverse()
    for turn in order:
        total = requests[turn].wait()
        assert np.all(total == SIZE * (turn + 1))
    requests = [c.ibarrier() for c in (first, second, first)]
    while not all(r.test() for r in requests):
        time.sleep(0)
    second.close()
    first.close()
    say("end")


def computing() -> None:
    """Rank 0 computes in Python with a large request in flight; rank 1 waits for it."""
    with hpcoll.Communicator() as comm:
        comm.allreduce(LARGE, algorithm="ring")
        comm.barrier()
        if RANK == 1:
            time.sleep(0.2)  # rank 0 must find nothing to do when it starts
        request = comm.iallreduce(LARGE, algorithm="ring")
        end = time.monotonic() + 2.0
        while RANK == 0 and time.monotonic() < end:
            sum(range(100))
        with noted("wait"):
            assert np.all(request.wait() == SIZE)


def signals() -> None:
    """A timer's handler runs while rank 0 waits for rank 1: in a run, and agreeing."""
    comm = hpcoll.Communicator()
    comm.allreduce(X, algorithm="ring")
    for op in ("sum", "max"):
        ran: list[float] = []
        signal.signal(signal.SIGALRM, lambda *_, ran=ran: ran.append(time.monotonic()))
        comm.barrier()
        if RANK == 0:
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        else:
            time.sleep(2.0)
        comm.allreduce(X, algorithm="ring", op=op)
        signal.setitimer(signal.ITIMER_REAL, 0)
        say("alarms", count=len(ran))


def rounds() -> None:
    """Communicators made, used, split and closed, many times."""
    for turn in range(30):
        with hpcoll.Communicator() as comm:
            assert np.all(comm.allreduce(X, algorithm="ring") == SIZE)
            if turn % 5 == 0:
                part = comm.split(RANK % 2)
                assert part is not None
                other = part.dup()
                other.barrier()
                part.close()
                other.close()
            request = comm.iallreduce(X)
        assert np.all(request.wait() == SIZE)
    say("end")


def dropped() -> None:
    """Requests, plans and communicators dropped in several orders."""
    comm = hpcoll.Communicator()
    plan = comm.plan("allreduce", X, algorithm="ring")
    plan()
    request = comm.iallreduce(LARGE, algorithm="ring")
    del comm
    gc.collect()
    assert np.all(request.wait() == SIZE)
    assert np.all(plan() == SIZE)
    other = hpcoll.Communicator()
    lost = other.iallreduce(LARGE.copy(), algorithm="ring")
    del lost
    gc.collect()
    junk = [LARGE * 7 for _ in range(4)]
    assert np.all(other.allreduce(X, algorithm="ring") == SIZE)
    del junk
    closed = hpcoll.Communicator()
    kept = closed.plan("allreduce", X, algorithm="ring")
    closed.close()
    closed.close()
    with noted("closed"):
        kept()
    with noted("closed"):
        closed.barrier()
    say("end")
    if RANK == 0:
        globals()["keep"] = (request, plan, other)


def unwaited() -> None:
    """Requests that nobody waits for at the end of the program."""
    comm = hpcoll.Communicator()
    keep: list[Any] = [comm.iallreduce(LARGE, algorithm="ring"), comm.ibarrier()]
    globals()["keep"] = keep
    say("end")


globals()[sys.argv[1]]()
