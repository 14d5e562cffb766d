"""What a rank publishes and reads: every message that is taken is read by some row."""

from __future__ import annotations

import pytest

from hpcoll.runtime.layout import layout_of
from hpcoll.runtime.publications import Message, draft
from hpcoll.schedule import registry

RANKS = 4


@pytest.mark.parametrize("count", [1, 3, 4, 1000])
@pytest.mark.parametrize(
    "algorithm", registry.algorithms("allreduce"), ids=lambda algorithm: algorithm.name
)
def test_every_message_of_an_allreduce_is_read_once_or_more(algorithm, count):
    if algorithm.native or algorithm.refuses(algorithm.problem(0, RANKS)):
        return
    shown, read = {}, {}
    for rank in range(RANKS):
        p = algorithm.problem(rank, RANKS)
        layout = layout_of(p, (count,), 1, 4)
        made = draft(algorithm.steps(p), p, layout, aliased=False, divisor=0, lone=False)
        for (peer, lane), entries in made.sent.items():
            shown[rank, peer, lane] = len(entries)
        for (peer, lane), taken in made.received.items():
            read[peer, rank, lane] = taken
        sources = {s for row in made.rows for s in row.sources if isinstance(s, Message)}
        assert len(sources) == sum(made.received.values())
        lines = [row.publication.line for row in made.rows if row.publication]
        assert sorted(lines) == list(range(made.lines))
    assert shown == read
