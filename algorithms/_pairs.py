"""A power of two of ranks out of any number: adjacent pairs act as one.

With r = p - 2^k ranks too many, rank 2i gives its data to rank 2i+1 for each i < r;
the members that are left keep the order of the ranks they stand for.
"""

from dataclasses import dataclass


def power_below(size: int) -> int:
    """The largest power of two that is not above `size`."""
    return 1 << (size.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Team:
    """The members that take part for all ranks: `size` of them, of which the first
    `pairs` stand for two ranks each.
    """

    size: int
    pairs: int

    @classmethod
    def of(cls, ranks: int) -> "Team":
        """The team of that many ranks."""
        size = power_below(ranks)
        return cls(size, ranks - size)

    def member(self, rank: int) -> int | None:
        """The number of the member that `rank` is; None where its neighbour acts for it."""
        if rank >= 2 * self.pairs:
            return rank - self.pairs
        return rank // 2 if rank % 2 else None

    def rank(self, member: int) -> int:
        """The rank that acts as that member."""
        return 2 * member + 1 if member < self.pairs else member + self.pairs

    def ranks(self, member: int) -> range:
        """The ranks that the member stands for."""
        last = self.rank(member)
        return range(last - (member < self.pairs), last + 1)
