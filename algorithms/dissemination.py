"""Dissemination barrier: signal ever more distant ranks, each heard by all it passes."""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms._radix import at_least_two
from hpcoll.schedule import Problem, algorithm, recv, send


@algorithm(
    "barrier",
    name="dissemination",
    when=at_least_two,
    source="Hensgen, Finkel, Manber 1988, doi:10.1007/BF01379320",
)
def barrier(p: Problem, *, radix: int = 2) -> Iterator[Any]:
    """Each round multiplies by `radix` how many ranks one has heard from."""
    distance = 1
    while distance < p.size:
        hops = range(distance, min(radix * distance, p.size), distance)
        yield (
            send([(p.rank + hop) % p.size for hop in hops]),
            [recv((p.rank - hop) % p.size) for hop in hops],
        )
        distance *= radix
