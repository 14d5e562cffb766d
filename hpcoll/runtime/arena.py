"""Which parts of an address range are taken: first fit, neighbours joined when freed."""

from __future__ import annotations

from bisect import bisect_left, insort

from hpcoll.runtime.layout import CACHE_LINE_NBYTES

PAGE_NBYTES = 4096


class Arena:
    """Hands out parts of a range that starts with an unused page.

    A part that takes a page or more begins on a page, so that its memory can be given
    back; smaller ones begin on a cache line.

    Parameters
    ----------
    nbytes : int
        Size of the range.
    """

    def __init__(self, nbytes: int) -> None:
        self._free = [(PAGE_NBYTES, nbytes)]  # (begin, end), in order, never touching
        self._taken: dict[int, int] = {}

    def take(self, nbytes: int) -> int | None:
        """Take a part; return where it begins, or None if none is large enough."""
        unit = CACHE_LINE_NBYTES if nbytes < PAGE_NBYTES else PAGE_NBYTES
        size = -(-max(nbytes, 1) // unit) * unit
        for i, (begin, end) in enumerate(self._free):
            at = -(-begin // unit) * unit
            if at + size <= end:
                rest = [(begin, at), (at + size, end)]
                self._free[i : i + 1] = [part for part in rest if part[0] < part[1]]
                self._taken[at] = size
                return at
        return None

    def give_back(self, at: int) -> tuple[int, int]:
        """Free the part that begins at `at`; return begin and end of the free range around."""
        begin, end = at, at + self._taken.pop(at)
        i = bisect_left(self._free, (begin, end))
        if i < len(self._free) and self._free[i][0] == end:
            end = self._free.pop(i)[1]
        if i and self._free[i - 1][1] == begin:
            begin = self._free.pop(i - 1)[0]
        insort(self._free, (begin, end))
        return begin, end

    @property
    def taken_nbytes(self) -> int:
        """Bytes of all parts that are taken."""
        return sum(self._taken.values())
