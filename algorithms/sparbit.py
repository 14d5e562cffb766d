"""Sparbit, stripe parallel binomial trees: Bruck with the far distances first.

Few rounds at any number of ranks, and the large messages go to near ranks.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms.pat import hop
from hpcoll.schedule import Problem, algorithm


@algorithm("allgather", name="sparbit", source="Loch, Koslovski 2021, arXiv:2109.08751")
def allgather(p: Problem) -> Iterator[Any]:
    """Each round every block that a rank holds goes on over half the distance of the last."""
    for k in reversed(range((p.size - 1).bit_length())):
        yield hop(p, 1 << k, 0, 2 << k)
