"""When each message of a run travels, if a rank sends one and receives one at a time."""

from __future__ import annotations

import heapq

from hpcoll.schedule.trace import Trace


def timetable(trace: Trace) -> list[int]:
    """The round of each message, in the order of ``trace.messages``; the first round is 0.

    Each message takes one round. A rank's messages leave in the order of its steps and
    of the peers in a step; each starts when the rank is in the step, the one before it
    has left, and the receiver's port is free. A step ends with the last of its messages.
    """
    messages = trace.messages
    size = len(trace.steps)
    # The messages that are still to come in each step of each rank.
    left = [[0] * steps for steps in trace.steps]
    leaving: list[list[int]] = [[] for _ in range(size)]
    for i, m in enumerate(messages):
        left[m.source][m.sent_in] += 1
        left[m.target][m.received_in] += 1
        leaving[m.source].append(i)
    for queue in leaving:
        queue.sort(key=lambda i: messages[i].order, reverse=True)
    ends = [[0] * steps for steps in trace.steps]
    rounds = [0] * len(messages)
    step = [0] * size
    out_free = [0] * size
    in_free = [0] * size
    queued = [False] * size
    heap: list[tuple[int, int]] = []

    def advance(r: int) -> None:
        """Go to the next steps of a rank while nothing in them is under way."""
        at, rest, end = step[r], left[r], ends[r]
        while at < len(rest) and not rest[at]:
            at += 1
            if at < len(rest):
                end[at] = max(end[at], end[at - 1])
        step[r] = at
        if leaving[r] and not queued[r] and messages[leaving[r][-1]].sent_in == at:
            begin = end[at - 1] if at else 0
            heapq.heappush(heap, (max(begin, out_free[r]), r))
            queued[r] = True

    for r in range(size):
        advance(r)
    while heap:
        now, r = heapq.heappop(heap)
        i = leaving[r][-1]
        source, sent_in, target, received_in, _, _ = messages[i]
        if in_free[target] > now:
            heapq.heappush(heap, (in_free[target], r))
            continue
        leaving[r].pop()
        queued[r] = False
        rounds[i] = now
        out_free[r] = in_free[target] = now + 1
        for rank, at in ((source, sent_in), (target, received_in)):
            left[rank][at] -= 1
            ends[rank][at] = max(ends[rank][at], now + 1)
        advance(r)
        advance(target)
    return rounds
