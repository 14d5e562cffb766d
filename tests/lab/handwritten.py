"""The engine's recursive doubling beside a hand-written exchange, on two ranks.

    mpiexec -n 2 python tests/lab/handwritten.py

The hand-written allreduce of two float32 is one compiled function: MPI_Irecv, MPI_Isend, a
loop of MPI_Testall, two additions. The engine reads its rows instead. Both are called from
Python through one integer, interleaved, and checked; printed are medians of best blocks.
"""

from __future__ import annotations

import os

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

import hpcoll
from hpcoll.bench.data import make_case
from hpcoll.bench.measure import Arrays, Contender, Meter, ratios
from hpcoll.bench.sync import NodeBarrier
from hpcoll.kernels.dtypes import DTYPES
from hpcoll.kernels.intrinsics import load64, make_call
from hpcoll.runtime import engine, words
from hpcoll.runtime.arrays import address_of
from hpcoll.runtime.bootstrap import library_version, mpi
from hpcoll.runtime.engine import entry_point
from hpcoll.schedule.ops import SUM
from hpcoll.transports.mpi import MpiChannel

_call4 = make_call(4)
_call7 = make_call(7)


@intrinsic
def _add_pairs(typingctx, a, b, target):
    """Add two packed pairs of float32 and store the result."""

    def codegen(context, builder, signature, args):
        pair = ir.VectorType(ir.FloatType(), 2)
        total = builder.fadd(builder.bitcast(args[0], pair), builder.bitcast(args[1], pair))
        place = builder.inttoptr(args[2], ir.PointerType(ir.IntType(64)))
        builder.store(builder.bitcast(total, ir.IntType(64)), place)
        return ir.Constant(ir.IntType(64), 0)

    return types.int64(types.int64, types.int64, types.int64), codegen


@njit(nogil=True, cache=True)
def exchange(t):
    """Swap two float32 with the peer and add them up."""
    target, buffer, requests = load64(t + 8), load64(t + 16), load64(t + 24)
    kind, peer, comm, width = load64(t + 32), load64(t + 40), load64(t + 48), load64(t + 56)
    _call7(load64(t + 64), buffer, 8, kind, peer, 5, comm, requests)
    _call7(load64(t + 72), load64(t), 8, kind, peer, 5, comm, requests + width)
    flag, statuses = load64(t + 88), load64(t + 96)
    while True:
        _call4(load64(t + 80), 2, requests, flag, statuses)
        if load64(flag) & 0xFFFFFFFF:
            break
    return _add_pairs(load64(load64(t)), load64(buffer), target)


def main() -> None:
    """Measure and print."""
    world = mpi().COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    assert size == 2, "needs two ranks"
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    comm = hpcoll.Communicator()
    channel = MpiChannel(world)
    meet = NodeBarrier(world.Dup(), one_node=True, crowded=False)
    case = make_case("allreduce", 8, size, rank, 0, DTYPES["float32"], SUM)
    arrays = Arrays.of(case, in_place=False)
    room, requests = np.zeros(64, np.int64), np.zeros(8, np.int64)
    table = np.array(
        [
            address_of(arrays.source), address_of(arrays.target), room.ctypes.data,
            requests.ctypes.data, channel.table[words.DATATYPE], 1 - rank,
            channel.table[words.COMM], channel.table[words.REQUEST_NBYTES],
            channel.table[words.RECV_FUNCTION], channel.table[words.SEND_FUNCTION],
            channel.table[words.TEST_FUNCTION], room.ctypes.data + 64, room.ctypes.data + 128,
        ],
        np.int64,
    )  # fmt: skip
    entry, address = entry_point(exchange, 1), int(table.ctypes.data)
    plan = comm.plan("allreduce", arrays.source, arrays.target, algorithm="recursive_doubling")
    hand = Contender("hand-written", lambda: entry(address), arrays)
    execute, run = entry_point(engine.execute, 1), plan.address
    ours = Contender("engine", lambda: execute(run), arrays)
    persistent = Contender("plan", plan, arrays)
    Meter(world.Dup(), meet, 4000, None).run([hand, ours, persistent])
    if rank == 0:
        ratio, low, high = ratios(ours, hand)
        print(f"{library_version()}: allreduce of 8 B, 2 ranks, us (median of the best block)")
        print(
            f"hand-written {hand.time_us:.3f}, engine {ours.time_us:.3f}, "
            f"plan() {persistent.time_us:.3f}"
        )
        print(f"engine / hand-written: {ratio:.2f} (quartiles of blocks {low:.2f} to {high:.2f})")
        print(f"wrong elements: {hand.wrong + ours.wrong + persistent.wrong}")


if __name__ == "__main__":
    main()
