"""Symbolic values: which contributions are in a chunk, and combined in which order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def rank_list(mask: int) -> str:
    """The ranks of a bit mask, as a person would write them: ``0-3, 6``."""
    ranks = [r for r in range(mask.bit_length()) if mask >> r & 1]
    runs: list[list[int]] = []
    for r in ranks:
        if runs and r == runs[-1][1] + 1:
            runs[-1][1] = r
        else:
            runs.append([r, r])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) or "none"


def contribution(chunk: object, mask: int) -> str:
    """A chunk of one rank, or reduced over several, in words."""
    if mask.bit_count() > 1:
        return f"chunk {chunk} reduced over ranks {rank_list(mask)}"
    return f"chunk {chunk} of rank {rank_list(mask)}"


class Symbols:
    """Interned values: equal numbers mean the same expression tree.

    A leaf is one rank's contribution to one chunk, a node a fold of several values.
    """

    def __init__(self) -> None:
        self._index: dict[Hashable, int] = {}
        self.chunk: list[Hashable] = []
        self.mask: list[int] = []
        self.twice: list[int] = []
        self.mixed: list[bool] = []
        self._order: list[tuple[int, int] | None] = []

    def leaf(self, rank: int, chunk: Hashable) -> int:
        """The contribution of `rank` to `chunk`."""
        key = ("leaf", rank, chunk)
        found = self._index.get(key)
        if found is None:
            found = self._add(key, chunk, 1 << rank, 0, False, (rank, rank))
        return found

    def fold(self, parts: Sequence[int]) -> int:
        """The left-to-right combination of values."""
        if len(parts) == 1:
            return parts[0]
        key = tuple(parts)
        found = self._index.get(key)
        if found is not None:
            return found
        if len(parts) == 2:
            return self._pair(key, parts[0], parts[1])
        mask, twice, mixed = 0, 0, False
        chunk = self.chunk[parts[0]]
        order: tuple[int, int] | None = self._order[parts[0]]
        for i, part in enumerate(parts):
            twice |= self.twice[part] | (mask & self.mask[part])
            mask |= self.mask[part]
            mixed = mixed or self.mixed[part] or self.chunk[part] != chunk
            if i:
                after = self._order[part]
                fits = order is not None and after is not None and order[1] < after[0]
                order = (order[0], after[1]) if fits else None  # type: ignore[index]
        return self._add(key, chunk, mask, twice, mixed, order)

    def _pair(self, key: Hashable, a: int, b: int) -> int:
        """What most folds are: two values that are right so far."""
        left, right = self._order[a], self._order[b]
        order = None
        if left is not None and right is not None and left[1] < right[0]:
            order = (left[0], right[1])
        mask, other = self.mask[a], self.mask[b]
        chunk = self.chunk[a]
        mixed = self.mixed[a] or self.mixed[b] or chunk != self.chunk[b]
        twice = self.twice[a] | self.twice[b] | (mask & other)
        return self._add(key, chunk, mask | other, twice, mixed, order)

    def in_rank_order(self, value: int) -> bool:
        """Whether contributions are combined in the order of the ranks."""
        return self._order[value] is not None

    def text(self, value: int | None) -> str:
        """A value in words."""
        if value is None:
            return "nothing"
        if self.mixed[value]:
            what = f"a mix of different chunks of ranks {rank_list(self.mask[value])}"
        else:
            what = contribution(self.chunk[value], self.mask[value])
        if self.twice[value]:
            what += f" (more than once: rank {rank_list(self.twice[value])})"
        return what

    def _add(
        self,
        key: Hashable,
        chunk: Hashable,
        mask: int,
        twice: int,
        mixed: bool,
        order: tuple[int, int] | None,
    ) -> int:
        number = self._index[key] = len(self.chunk)
        self.chunk.append(chunk)
        self.mask.append(mask)
        self.twice.append(twice)
        self.mixed.append(mixed)
        self._order.append(order)
        return number
