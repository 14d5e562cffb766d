"""Rows over shared memory in plain Python: the reference that the compiled engine is held to.

Python's stores come one after the other, and x86 shows them to others in that order, so
aligned words serve as flags here too. It stages everything, as all ranks do then: they
agree on the engine.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

import numpy as np

from hpcoll.kernels import reference
from hpcoll.runtime import blocks, segments, words
from hpcoll.runtime import shared_recipe as table
from hpcoll.runtime.shared_run import SharedRun

_ring_block = blocks.ring_block.py_func
_word = ctypes.c_int64.from_address


class SharedReference:
    """Carries out one run over shared memory.

    Parameters
    ----------
    run : SharedRun
        A run that has its call number.
    """

    def __init__(self, run: SharedRun) -> None:
        self._run = run
        self._channel = channel = run.channel.table
        words_ = run.table
        words_[words.FIRST_TICK] = channel[words.TICKS] + 1
        channel[words.TICKS] += run.recipe.pieces
        words_[words.TURN] = channel[words.TURNS]
        channel[words.TURNS] += 1
        self._ring_from = self._take_blocks()
        words_[words.ITERATION] = 0
        words_[words.AWAITED] = -1
        words_[words.MARK] = words_[words.SIGNATURE] ^ words_[words.CALL]
        self._deadline = 0

    def advance(self, slice_ns: int) -> int:
        """Carry out rows until the end or a wait that lasts longer than `slice_ns`."""
        run, channel, recipe = self._run, self._channel, self._run.recipe
        if channel[words.SERVED] != run.table[words.TURN]:
            return words.PENDING
        self._deadline = time.monotonic_ns() + slice_ns
        first = int(run.table[words.FIRST_TICK])
        while run.table[words.ITERATION] < recipe.pieces + recipe.skew:
            iteration = int(run.table[words.ITERATION])
            while run.table[words.ROW] < len(recipe.rows):
                row = [int(v) for v in recipe.rows[run.table[words.ROW]]]
                k = iteration - row[table.ROW_SKEW]
                if 0 <= k < recipe.pieces and not self._row(row, k, first + k):
                    return words.PENDING
                run.table[words.ROW] += 1
            run.table[words.ROW] = 0
            run.table[words.ITERATION] += 1
            if iteration >= recipe.skew:
                mine = self._segment(int(channel[words.RANK]))
                _word(mine + segments.DONE_AT).value = first + iteration - recipe.skew
        channel[words.SERVED] += 1
        run.table[words.ROW] = len(recipe.rows)
        return words.DONE

    def _take_blocks(self) -> int:
        """As `blocks.take_blocks`."""
        recipe, channel = self._run.recipe, self._channel
        nbytes = recipe.block_nbytes
        if nbytes <= segments.SMALL_NBYTES:
            return 0
        begin = int(channel[words.RING_POSITION])
        if begin + nbytes > segments.RING_NBYTES:
            begin = 0
        last = _ring_block(begin, recipe.pieces - 1, nbytes)
        channel[words.RING_POSITION] = last + nbytes
        return begin

    def _segment(self, rank: int) -> int:
        return int(self._run.bases[table.SEGMENT_BASE + rank])

    def _until(self, peer: int, ready: Callable[[], bool]) -> bool:
        while not ready():
            if time.monotonic_ns() >= self._deadline:
                self._run.table[words.AWAITED] = peer
                return False
            os.sched_yield()
        return True

    def _row(self, row: list[int], k: int, tick: int) -> bool:
        """One row of one piece; false if it must wait."""
        run, recipe = self._run, self._run.recipe
        kind, nsrc, ndst, first = row[:4]
        if kind == table.CHECK:
            return self._check(tick)
        operands = recipe.operands[first : first + nsrc + ndst].tolist()
        nbytes = min(row[table.NBYTES] - k * recipe.piece_nbytes, recipe.piece_nbytes)
        if kind == table.WHOLE:
            if k == 0:
                source, target = (self._address(o, 0, 0) for o in operands)
                ctypes.memmove(target, source, row[table.NBYTES])
            return True
        slot = tick % segments.DEPTH
        for entry in operands[:nsrc]:
            if entry[table.WAIT_LINE] >= 0:
                peer = entry[table.PEER]
                line = self._line(entry, slot)
                mark = run.table[words.MARK]

                def come(line: int = line, mark: int = mark) -> bool:
                    return _word(line).value >= tick and _word(line + 8).value == mark

                if not self._until(peer, come):
                    return False
        if kind == table.DIVIDE:
            self._divide(operands[0], row[table.EXTRA], nbytes, k)
            return True
        if nbytes > 0 and ndst:
            values = [self._read(entry, k, slot, nbytes) for entry in operands[:nsrc]]
            value = values[0]
            if nsrc > 1 and run.op is not None:
                parts = [_array(v, run) for v in values]
                value = reference.fold(run.op, parts).tobytes()
            for entry in operands[nsrc:]:
                if not entry[table.OPTIONS] & table.PUSH:
                    ctypes.memmove(self._address(entry, k, slot), value, nbytes)
        if row[table.LINE] >= 0:
            line = self._segment(int(self._channel[words.RANK])) + row[table.LINE]
            line += slot * segments.LINE_STRIDE
            _word(line + 8).value = int(run.table[words.MARK])
            if row[table.EXTRA] & table.TELLS:
                _word(line + 16).value = _word(line + 24).value = 0
            _word(line).value = tick
        return True

    def _check(self, tick: int) -> bool:
        me = int(self._channel[words.RANK])
        for peer in range(int(self._channel[words.SIZE])):
            done = self._segment(peer) + segments.DONE_AT

            def free(done: int = done) -> bool:
                return _word(done).value >= tick - segments.DEPTH

            if peer != me and not self._until(peer, free):
                return False
        return True

    def _line(self, entry: list[int], slot: int) -> int:
        at = self._segment(entry[table.PEER]) + entry[table.WAIT_LINE]
        return at + slot * segments.LINE_STRIDE

    def _address(self, entry: list[int], k: int, slot: int) -> int:
        base = int(self._run.bases[entry[table.BASE]]) + entry[table.OFFSET]
        at = base + k * entry[table.PIECE_STRIDE] + slot * entry[table.DEPTH_STRIDE]
        if not entry[table.OPTIONS] & table.SLOT:
            return at
        nbytes = self._run.recipe.block_nbytes
        if nbytes <= segments.SMALL_NBYTES:
            return at + segments.BLOCKS_AT + slot * segments.SMALL_STRIDE
        return at + segments.RING_AT + _ring_block(self._ring_from, k, nbytes)

    def _read(self, entry: list[int], k: int, slot: int, nbytes: int) -> bytes:
        return ctypes.string_at(self._address(entry, k, slot), nbytes)

    def _divide(self, entry: list[int], divisor: int, nbytes: int, k: int) -> None:
        run = self._run
        if nbytes <= 0:
            return
        operand = _array(self._read(entry, k, 0, nbytes), run)
        if divisor > 1:
            result = reference.divide(operand, divisor)
        elif run.op is not None:
            result = reference.fold(run.op, [operand])
        ctypes.memmove(self._address(entry, k, 0), result.tobytes(), nbytes)


def _array(value: bytes, run: SharedRun) -> reference.Array:
    return np.frombuffer(value, run.dtype)
