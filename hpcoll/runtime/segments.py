"""Each rank's segment of shared memory, mapped by all other ranks of the node.

A segment holds control words, then for each of `DEPTH` ticks the lines of the rank's
publications, then room for what was published: blocks of a tick's slots. Small blocks lie
where those of `DEPTH` ticks before lay, still in the caches. Larger ones follow each other
through a ring that is longer than a core's second-level cache: storing to lines which have
left the readers' caches is two to three times as fast as to those which are still there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hpcoll.runtime.shared_file import SharedFile

LINE_NBYTES = 64
PAYLOAD_AT = 16
PAYLOAD_NBYTES = 48
"""So much is published inside the line itself."""

DONE_AT, SLEEPING_AT, DOORBELL_AT, NAP_AT, SLEEPERS_AT = 0, 64, 72, 96, 128
"""Places of the control words in a segment; the first rank's count of sleepers serves all."""

NAP_NS = 1_000_000
DEPTH = 4
LINES = 8192
CONTROL_NBYTES = 4096
LINE_STRIDE = (LINES + 67) * LINE_NBYTES
"""From one tick's lines to the next one's: no multiple of a page, which would fall in the
same sets of the caches."""
BLOCKS_AT = -(-(CONTROL_NBYTES + DEPTH * LINE_STRIDE) // 4096) * 4096
SMALL_NBYTES = 4 << 10
"""Blocks of up to this size are small."""
SMALL_STRIDE = SMALL_NBYTES + LINE_NBYTES
BLOCK_NBYTES = 512 << 10
"""The largest block: all slots that one tick fills."""
RING_AT = BLOCKS_AT + DEPTH * SMALL_STRIDE
RING_NBYTES = (DEPTH + 1) * BLOCK_NBYTES
"""Room for the blocks that may be in use, wherever the first of them lies."""
SEGMENT_NBYTES = RING_AT + RING_NBYTES


class Segment(SharedFile):
    """The segment of this rank."""

    def __init__(self) -> None:
        super().__init__(SEGMENT_NBYTES)
        self._lines, self._blocks = 0, False
        try:
            self.allocate(0, CONTROL_NBYTES)
        except BaseException:
            self.close()
            raise
        self.words(NAP_AT, 2)[:] = 0, NAP_NS

    def words(self, at: int, count: int) -> NDArray[np.int64]:
        """Some words of it."""
        return self.bytes(at, 8 * count).view(np.int64)

    def reserve(self, lines: int, *, blocks: bool) -> None:
        """Make sure that there is memory for a recipe's lines and blocks.

        Raises
        ------
        TransportUnavailable
            If there isn't.
        """
        if lines > self._lines:
            for tick in range(DEPTH):
                self.allocate(CONTROL_NBYTES + tick * LINE_STRIDE, lines * LINE_NBYTES)
            self._lines = lines
        if blocks and not self._blocks:
            self.allocate(BLOCKS_AT, SEGMENT_NBYTES - BLOCKS_AT)
            self._blocks = True
