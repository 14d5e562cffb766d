"""Grid: an alltoall along the rows of a grid of ranks, then one along its columns.

Each rank exchanges with a + b - 2 others instead of a b - 1, and moves everything twice.
"""

from math import isqrt

from hpcoll.algorithms import pairwise
from hpcoll.schedule import Problem, rails, register


def rows(p: Problem, *, columns: int = 0) -> tuple[tuple[int, ...], ...]:
    """Rows of a grid that p fills: of up to `columns` columns, or as near to square as can be."""
    width = min(columns or isqrt(p.size), p.size)
    while p.size % width:
        width -= 1
    return tuple(tuple(range(r, r + width)) for r in range(0, p.size, width))


register(
    rails("alltoall", intra=pairwise.alltoall, inter=pairwise.alltoall, groups=rows),
    name="grid",
    source="Thakur, Choudhary 1994, doi:10.1109/IPPS.1994.288248",
    doc="Along the row for all columns at once, then along the column.",
)
