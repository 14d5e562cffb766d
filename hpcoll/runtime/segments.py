"""Each rank's segment of shared memory, mapped by all other ranks of the node.

A segment holds control words, then for each of `DEPTH` ticks the lines of the rank's
publications, then for each of them the slots with what was published. Only what calls
have needed takes memory.
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
SLOTS_AT = -(-(CONTROL_NBYTES + DEPTH * LINE_STRIDE) // 4096) * 4096
SLOTS_NBYTES = 1 << 20
SLOTS_STRIDE = SLOTS_NBYTES + 4096
SEGMENT_NBYTES = SLOTS_AT + DEPTH * SLOTS_STRIDE


class Segment(SharedFile):
    """The segment of this rank."""

    def __init__(self) -> None:
        super().__init__(SEGMENT_NBYTES)
        self._lines = self._slots = 0
        try:
            self.allocate(0, CONTROL_NBYTES)
        except BaseException:
            self.close()
            raise
        self.words(NAP_AT, 2)[:] = 0, NAP_NS

    def words(self, at: int, count: int) -> NDArray[np.int64]:
        """Some words of it."""
        return self.bytes(at, 8 * count).view(np.int64)

    def reserve(self, lines: int, slots_nbytes: int) -> None:
        """Make sure that there is memory for a recipe's lines and slots.

        Raises
        ------
        TransportUnavailable
            If there isn't.
        """
        for tick in range(DEPTH):
            if lines > self._lines:
                self.allocate(CONTROL_NBYTES + tick * LINE_STRIDE, lines * LINE_NBYTES)
            if slots_nbytes > self._slots:
                self.allocate(SLOTS_AT + tick * SLOTS_STRIDE, slots_nbytes)
        self._lines, self._slots = max(lines, self._lines), max(slots_nbytes, self._slots)
