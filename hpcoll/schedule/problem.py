"""What an algorithm is asked: one rank's view of one collective, without message sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcoll.errors import ScheduleError
from hpcoll.schedule.topology import Topology


class Asked:
    """Whether an operator commutes, and whether the algorithm has asked."""

    def __init__(self, commutes: bool) -> None:
        self._commutes = commutes
        self.seen = False

    def __bool__(self) -> bool:
        self.seen = True
        return self._commutes


@dataclass(frozen=True, slots=True)
class Problem:
    """One rank's view of a collective.

    Attributes
    ----------
    collective : str
        Name of the collective.
    rank, size, root : int
        This rank, the number of ranks, and the root (0 where there is none).
    chunks : int
        Number of chunks of the work buffer.
    blocks : tuple of tuple of int
        The chunks that each rank owns, for the collectives that have owners
        (allgather, reduce_scatter, gather, scatter); empty for the others.
    commutes : bool
        Whether operands of the reduction may be swapped.
    topology : Topology
        Which ranks share a node.
    ranks : tuple of int
        For a part of a larger problem: the number in that problem of each rank.
    chunk_ids : mapping or None
        For a part of a larger problem: the chunks of that problem that each chunk
        stands for; None where they are the same.
    """

    collective: str
    rank: int
    size: int
    root: int = 0
    chunks: int = 1
    blocks: tuple[tuple[int, ...], ...] = ()
    commutes: bool | Asked = True
    topology: Topology | None = None
    ranks: tuple[int, ...] = ()
    chunk_ids: Mapping[Any, tuple[Any, ...]] | None = None

    def owned(self, rank: int) -> tuple[int, ...]:
        """The chunks that belong to `rank`, lowest first; may be empty or several."""
        return self.blocks[rank]

    @property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each node; all on one in a part of a larger problem."""
        if self.topology is None:
            return (tuple(range(self.size)),)
        return self.topology.nodes

    def at(self, rank: int) -> Problem:
        """The same problem as `rank` sees it."""
        return replace(self, rank=rank)

    def sub(
        self,
        ranks: Sequence[int],
        owners: Sequence[int] | None = None,
        *,
        collective: str | None = None,
        chunk_ids: Sequence[int | tuple[int, ...]] | None = None,
        pairs: Mapping[tuple[int, int], tuple[tuple[int, int], ...]] | None = None,
        root: int = 0,
    ) -> Problem:
        """A problem on part of the ranks, and of the chunks.

        Parameters
        ----------
        ranks : sequence of int
            The ranks that take part, in the order of their new numbers; this rank
            must be among them.
        owners : sequence of int, optional
            For each chunk, the new number of the rank that owns it.
        collective : str, optional
            Another collective than this one's.
        chunk_ids : sequence, optional
            The chunks it is about, all by default; they are numbered from 0. A tuple
            of chunks is dealt with as one.
        pairs : mapping, optional
            For an alltoall: the chunks that go with each (source, destination) of the
            new numbers; by default the same pair.
        root : int
            New number of the root.

        Raises
        ------
        ScheduleError
            If this rank does not take part, a rank is named twice, or an owner or the
            root is not one of the ranks.
        """
        if self.rank not in ranks:
            raise ScheduleError(f"rank {self.rank} is not among the ranks {tuple(ranks)}")
        if len(set(ranks)) != len(ranks):
            raise ScheduleError(f"a rank is named twice in {tuple(ranks)}")
        if not 0 <= root < len(ranks):
            raise ScheduleError(f"root {root} is not one of {len(ranks)} ranks")
        count = self.chunks if chunk_ids is None else len(chunk_ids)
        blocks: tuple[tuple[int, ...], ...] = ()
        if owners is not None:
            if len(owners) != count or not all(0 <= o < len(ranks) for o in owners):
                raise ScheduleError(
                    f"owners {tuple(owners)} must name one of {len(ranks)} ranks "
                    f"for each of {count} chunks"
                )
            blocks = blocks_of(owners, len(ranks))
        ids: Mapping[Any, tuple[Any, ...]] | None = pairs
        if chunk_ids is not None:
            ids = {i: c if isinstance(c, tuple) else (c,) for i, c in enumerate(chunk_ids)}
        return replace(
            self,
            collective=collective or self.collective,
            rank=list(ranks).index(self.rank),
            size=len(ranks),
            root=root,
            chunks=count,
            blocks=blocks,
            topology=self.topology if list(ranks) == list(range(self.size)) else None,
            ranks=tuple(ranks),
            chunk_ids=ids,
        )


def blocks_of(owners: Sequence[int], size: int) -> tuple[tuple[int, ...], ...]:
    """The chunks of each rank, from the owner of each chunk."""
    blocks: list[list[int]] = [[] for _ in range(size)]
    for chunk, owner in enumerate(owners):
        blocks[owner].append(chunk)
    return tuple(tuple(block) for block in blocks)
