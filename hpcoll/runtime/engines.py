"""The two engines: the compiled one, and the same rows in plain Python as the reference.

The Python engine goes over the transport's Python half. It is slow and short; tests hold
the compiled engine to it.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcoll.errors import HpcollError
from hpcoll.kernels import reference
from hpcoll.kernels.compile import compiling, sources_stamp
from hpcoll.runtime import engine, words
from hpcoll.runtime.bootstrap import mpi
from hpcoll.runtime.recipe import DIVIDE, FOLD, IMMEDIATE, MOVE, NATIVE, SEND, WAIT
from hpcoll.runtime.run import Run
from hpcoll.runtime.shared_reference import SharedReference
from hpcoll.runtime.shared_run import SharedRun


class PythonEngine:
    """Carries out runs row by row."""

    name = "python"

    def __init__(self) -> None:
        self._requests: dict[int, list[Any]] = {}
        self._shared: dict[int, SharedReference] = {}

    def begin(self, run: Run) -> None:
        """Take the next call number and stand before the first row."""
        channel, table = run.channel.table, run.table
        channel[words.CALLS] += 1
        call, signature = int(channel[words.CALLS]), int(table[words.SIGNATURE])
        slot = call & int(channel[words.HISTORY_MASK])
        ctypes.c_int64.from_address(int(channel[words.HISTORY]) + 8 * slot).value = signature
        tag = (call & int(channel[words.CALL_MASK])) << int(channel[words.CALL_SHIFT])
        short = signature & int(channel[words.SIGNATURE_MASK])
        table[words.TAG] = tag | short << int(channel[words.SIGNATURE_SHIFT])
        table[words.CALL] = call
        table[words.ROW] = 0
        self._requests[run.address] = []
        if isinstance(run, SharedRun):
            self._shared[run.address] = SharedReference(run)

    def advance(self, run: Run, slice_ns: int) -> int:
        """Carry out rows until the end or a wait that lasts longer than `slice_ns`."""
        if not run.channel.table[words.USABLE]:
            return words.UNUSABLE
        if run.address in self._shared:
            code = self._shared[run.address].advance(slice_ns)
            if code == words.DONE:
                del self._shared[run.address]
            return code
        library = mpi()
        try:
            return self._carry_out(run, slice_ns)
        except library.Exception as error:
            return words.MPI_ERROR - int(error.Get_error_code())

    def _carry_out(self, run: Run, slice_ns: int) -> int:
        rows, table = run.recipe.rows, run.table
        requests = self._requests[run.address]
        while table[words.ROW] < len(rows):
            kind, nsrc, _, first, nbytes, peer, lane, extra = map(int, rows[table[words.ROW]])
            tag = int(table[words.TAG]) | lane
            if kind == WAIT:
                start = time.monotonic_ns()
                while not run.channel.test_all(requests):
                    if time.monotonic_ns() - start >= slice_ns:
                        return words.PENDING
                    os.sched_yield()
                requests.clear()
            elif kind in (MOVE, FOLD, DIVIDE):
                self._write(run, kind, nsrc, first, nbytes, extra)
            elif kind == NATIVE:
                values = [self._address(run, first + k) for k in range(nsrc)]
                requests.append(run.channel.native(extra, values))
            else:
                view = self._bytes(run, first, nbytes)
                post = run.channel.send if kind == SEND else run.channel.recv
                requests.append(post(view, peer, tag))
            table[words.ROW] += 1
        del self._requests[run.address]
        return words.DONE

    def execute(self, run: Run) -> int:
        """Begin a run and carry out as much of it as one slice of time allows."""
        if not run.channel.table[words.USABLE]:
            return words.UNUSABLE
        self.begin(run)
        return self.advance(run, words.SLICE_NS)

    def _address(self, run: Run, index: int) -> int:
        base, value = map(int, run.recipe.operands[index])
        return value if base == IMMEDIATE else int(run.bases[base]) + value

    def _bytes(self, run: Run, index: int, nbytes: int) -> NDArray[np.uint8]:
        if not nbytes:
            return np.empty(0, np.uint8)
        address = self._address(run, index)
        room = (ctypes.c_uint8 * nbytes).from_address(address)
        return np.ctypeslib.as_array(room)

    def _write(self, run: Run, kind: int, nsrc: int, first: int, nbytes: int, divisor: int) -> None:
        sources = [self._bytes(run, first + k, nbytes) for k in range(nsrc)]
        target = self._bytes(run, first + nsrc, nbytes)
        if kind == MOVE:
            target[:] = sources[0].copy()
            return
        operands = [s.view(run.dtype) for s in sources]
        if kind == DIVIDE:
            result = reference.divide(operands[0], divisor)
        elif run.op is None:
            raise HpcollError("a fold without an operator")
        else:
            result = reference.fold(run.op, operands)
        target[:] = np.ascontiguousarray(result).view(np.uint8)


class CompiledEngine:
    """The interpreter compiled by numba."""

    name = "compiled"

    def __init__(self) -> None:
        here = Path(__file__).parent
        stamp = sources_stamp(here, here.parent / "kernels")
        with compiling("engine", engine.entry_point, stamp):
            self._begin = engine.entry_point(engine.begin, 1)
            self._advance = engine.entry_point(engine.advance, 2)
            self.entry = engine.entry_point(engine.execute, 1)
            self.briefly = engine.entry_point(engine.execute_briefly, 3)

    def begin(self, run: Run) -> None:
        """Take the next call number and stand before the first row."""
        self._begin(run.address)

    def advance(self, run: Run, slice_ns: int) -> int:
        """Carry out rows until the end, a wait longer than `slice_ns`, or an error."""
        return int(self._advance(run.address, slice_ns))

    def execute(self, run: Run) -> int:
        """Begin a run and carry out as much of it as one slice of time allows."""
        return int(self.entry(run.address))
