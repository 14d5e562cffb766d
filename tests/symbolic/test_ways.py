"""Where blocks lie, and which way a pass takes: the arithmetic that all ranks share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcoll.runtime import words
from hpcoll.runtime.blocks import block_at, take_blocks
from hpcoll.runtime.segments import (
    BLOCK_NBYTES,
    BLOCKS_AT,
    DEPTH,
    RING_AT,
    SEGMENT_NBYTES,
    SMALL_NBYTES,
)
from hpcoll.runtime.ways import (
    BEST,
    LEARNING,
    MASK,
    MEASURE,
    PERIOD,
    READERS_PART,
    STATE_WORDS,
    STREAM_OWN,
    STREAM_SHARED,
    TRIAL,
    choose_way,
    learn_way,
)

CALLS = st.lists(
    st.tuples(st.integers(0, BLOCK_NBYTES // 64) | st.just(BLOCK_NBYTES // 64), st.integers(1, 40)),
    min_size=1,
    max_size=30,
)


@settings(deadline=None)  # the first example compiles
@given(CALLS)
def test_blocks_of_as_many_ticks_as_may_be_in_use_never_overlap(calls):
    """Whatever sizes follow each other, and wherever the ring ends."""
    channel = np.zeros(words.CHANNEL_WORDS, np.int64)
    run = np.zeros(words.RUN_WORDS, np.int64)
    run[words.CHANNEL] = channel.ctypes.data
    in_use: list[tuple[int, int]] = []
    tick = 0
    for lines, pieces in calls:
        nbytes = run[words.BLOCK_NBYTES] = 64 * lines
        run[words.PIECES] = pieces
        take_blocks(run.ctypes.data)
        for k in range(pieces):
            tick += 1
            at = block_at(run.ctypes.data, k, tick)
            assert at % 64 == 0
            assert at >= BLOCKS_AT
            assert at + nbytes <= SEGMENT_NBYTES
            assert (at >= RING_AT) == (nbytes > SMALL_NBYTES)
            assert all(at + nbytes <= a or a + n <= at for a, n in in_use)
            in_use = [*in_use, (at, nbytes)][1 - DEPTH :]


class Pass:
    """A pass over a KiB of memory that costs `costs[way]` cycles."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self.state = np.zeros(STATE_WORDS, np.int64)

    def use(self, costs: dict[int, int], times: int) -> list[int]:
        """Use it so many times; return the ways it took."""
        taken = []
        for _ in range(times):
            way = choose_way(self.state.ctypes.data, self.allowed)
            taken.append(way & MASK)
            if way & MEASURE:
                learn_way(self.state.ctypes.data, way, costs[way & MASK], 1024)
        return taken


@pytest.mark.parametrize("allowed", [STREAM_SHARED, STREAM_OWN, STREAM_SHARED | STREAM_OWN])
@settings(deadline=None)
@given(costs=st.lists(st.integers(1, 10_000), min_size=4, max_size=4))
def test_after_the_trials_the_best_way_is_taken_and_the_others_seldom(allowed, costs):
    worth = {w: c * (READERS_PART if w & STREAM_SHARED else 1) for w, c in enumerate(costs)}
    possible = {w & allowed for w in range(4)}
    row = Pass(allowed)
    tried = row.use(dict(enumerate(costs)), LEARNING * TRIAL)
    assert set(tried) == possible
    taken = row.use(dict(enumerate(costs)), PERIOD * TRIAL)
    others = [w for w in taken if worth[w] > min(worth[p] for p in possible)]
    assert len(others) <= TRIAL


@settings(deadline=None)
@given(st.integers(10, 1000), st.integers(4, 50))
def test_a_machine_that_changes_is_noticed(cost, factor):
    """The way that has become slow is left, and taken again when it's fast again."""
    row = Pass(STREAM_OWN)
    row.use({0: cost, STREAM_OWN: 2 * cost}, LEARNING * TRIAL)
    assert row.state[BEST] == 0
    slow = {0: factor * cost, STREAM_OWN: 2 * cost}
    assert row.use(slow, 2 * PERIOD * TRIAL)[-1] == STREAM_OWN
    back = row.use({0: cost, STREAM_OWN: 2 * cost}, 5 * PERIOD * TRIAL)
    assert back[-1] == 0
