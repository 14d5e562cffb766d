"""Circulant broadcast: all ranks pass on one block a round, each round over another distance.

No schedule has fewer rounds, at any number of ranks: for large messages. In round k
of a phase of L rounds, every rank sends over the k-th of the circulant distances.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

from hpcoll.algorithms.circulant import skips
from hpcoll.schedule import Problem, algorithm, recv, register, reversed_, send

SOURCE = "Traeff 2024, arXiv:2407.18004"


@lru_cache(maxsize=4096)
def arrivals(size: int, number: int) -> tuple[int, ...]:
    """The block that arrives in each round of a phase; below 0 if of the phase before.

    A block finds its way from the root by shrinking distances, and is numbered by the
    last. Of the ranks that distances still unused lead to, one is looked for farther
    below with each round: its block is what arrives.
    """
    distances = skips(size)
    phase = len(distances) - 1
    unused = list(range(phase, -1, -1))
    here = size + number
    reached, found = here + 1, []
    for near, far in pairwise([0, *distances]):
        limit, reached, block = min(here - near, reached - 1), 0, 0
        for k in unused:
            if reached + distances[k] <= limit:
                reached, block = reached + distances[k], k
                if reached > here - far:
                    break
        unused.remove(block)
        found.append(block)
    own, *others = found
    return tuple([own if block == phase else block - phase for block in others])


@algorithm("broadcast", name="circulant", chunks=lambda p, *, segments: segments, source=SOURCE)
def broadcast(p: Problem, *, segments: int = 4) -> Iterator[Any]:
    """In each round one block leaves and another arrives; the root only sends."""
    if p.size == 1:
        return
    *distances, _ = skips(p.size)
    phase, last = len(distances), segments - 1
    me = (p.rank - p.root) % p.size
    idle = -last % phase  # rounds left out of the first phase, so that the last is whole

    def arriving(number: int, now: int) -> tuple[int, ...]:
        block = arrivals(p.size, number)[now % phase] + now - now % phase - idle
        return (min(block, last),) if number and block >= 0 else ()

    for now in range(idle, idle + last + phase):
        distance = distances[now % phase]
        above, below = (me + distance) % p.size, (me - distance) % p.size
        out, into = arriving(above, now), arriving(me, now)
        yield (
            send((above + p.root) % p.size, *out) if out else (),
            recv((below + p.root) % p.size, *into) if into else (),
        )


register(
    reversed_(broadcast),
    name="circulant",
    doc="The broadcast backwards: one block leaves and another is folded in each round.",
)
