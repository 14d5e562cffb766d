"""The blocks of several ranks in one message."""

from collections.abc import Iterable

from hpcoll.schedule import Problem


def blocks(p: Problem, ranks: Iterable[int]) -> list[int]:
    """The chunks that the ranks own, in the order given; ranks count on past the last."""
    return [c for r in ranks for c in p.owned(r % p.size)]
