"""Which ranks share a node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property


class Topology:
    """Where the ranks of a communicator are.

    Parameters
    ----------
    node_of : sequence of int
        Node number of each rank, nodes numbered by their lowest rank.
    """

    def __init__(self, node_of: Sequence[int]) -> None:
        self.node_of = tuple(node_of)

    @classmethod
    def single_node(cls, size: int) -> Topology:
        """All ranks on one node."""
        return cls((0,) * size)

    @classmethod
    def blocks(cls, size: int, ranks_per_node: int) -> Topology:
        """So many consecutive ranks a node; the last node has the rest."""
        return cls([r // ranks_per_node for r in range(size)])

    @cached_property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each node."""
        groups: dict[int, list[int]] = {}
        for rank, node in enumerate(self.node_of):
            groups.setdefault(node, []).append(rank)
        return tuple(tuple(group) for group in groups.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self.node_of == other.node_of

    def __hash__(self) -> int:
        return hash(self.node_of)

    def __repr__(self) -> str:
        return f"Topology({self.node_of})"


class Watched(Topology):
    """A topology that notes whether anyone looked: flat algorithms never do."""

    seen = False
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    @property
    def node_of(self) -> tuple[int, ...]:  # type: ignore[override]
        self.seen = True
        return self._topology.node_of

    @cached_property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        self.seen = True
        return self._topology.nodes
