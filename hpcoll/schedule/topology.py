"""Which ranks share a node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Topology:
    """Where the ranks of a communicator are.

    Attributes
    ----------
    node_of : tuple of int
        Node number of each rank, nodes numbered by their lowest rank.
    """

    node_of: tuple[int, ...]

    @classmethod
    def single_node(cls, size: int) -> Topology:
        """All ranks on one node."""
        return cls((0,) * size)

    @cached_property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each node."""
        groups: dict[int, list[int]] = {}
        for rank, node in enumerate(self.node_of):
            groups.setdefault(node, []).append(rank)
        return tuple(tuple(group) for group in groups.values())
