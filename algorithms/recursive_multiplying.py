"""Recursive multiplying: groups of `radix` exchange everything, then groups of groups.

Fewer rounds than recursive doubling where a rank can talk to several others at once;
for small messages.
"""

from collections.abc import Iterator
from typing import Any

from hpcoll.algorithms._radix import at_least_two
from hpcoll.schedule import Problem, algorithm, fold, incoming, recv, send


@algorithm(
    "allreduce",
    name="recursive_multiplying",
    when=at_least_two,
    source="Ruefenacht, Bull, Booth 2017, doi:10.1016/j.parco.2017.08.004",
)
def allreduce(p: Problem, *, radix: int = 4) -> Iterator[Any]:
    """A power of `radix` members take part; each stands for a run of ranks: its last acts."""
    radix = max(2, min(radix, p.size))
    members = 1
    while members * radix <= p.size:
        members *= radix
    each, more = divmod(p.size, members)

    def acts(member: int) -> int:
        return (member + 1) * each + min(member + 1, more) - 1

    me = max((p.rank - more) // each, p.rank // (each + 1))
    others = range(acts(me - 1) + 1, acts(me))
    if p.rank in others:
        yield send(acts(me), 0)
        yield recv(acts(me), 0)
        return
    if others:
        yield fold(0, [*map(incoming, others), 0])
    place = 1
    while place < members:
        digit = me // place % radix
        team = [acts(me + (d - digit) * place) for d in range(radix)]
        yield (
            send(team[digit + 1 :] + team[:digit], 0),
            fold(0, [0 if r == p.rank else incoming(r) for r in team]),
        )
        place *= radix
    if others:
        yield send(others, 0)
