"""When each message of a run travels, if a rank sends one and receives one at a time."""

from __future__ import annotations

from hpcoll.schedule.trace import Trace


def timetable(trace: Trace) -> list[int]:
    """The round of each message, in the order of ``trace.messages``; the first round is 0.

    A message takes one round, in which both ranks are in its step. Of the messages of a
    step a rank sends the first whose receiver is there and has its port free. A rank goes
    on to its next step in the round after the last message of a step.
    """
    messages = trace.messages
    size = len(trace.steps)
    # Of each step of each rank: how many messages it still waits for, and which it sends.
    left = [[0] * steps for steps in trace.steps]
    sends: list[dict[int, list[int]]] = [{} for _ in range(size)]
    for i in sorted(range(len(messages)), key=lambda i: messages[i].order):
        m = messages[i]
        left[m.source][m.sent_in] += 1
        left[m.target][m.received_in] += 1
        sends[m.source].setdefault(m.sent_in, []).append(i)
    rounds = [0] * len(messages)
    step = [0] * size
    moved: set[int] | range = range(size)
    now = 0
    while True:
        for r in moved:
            while step[r] < len(left[r]) and not left[r][step[r]]:
                step[r] += 1
        senders = [r for r in range(size) if sends[r].get(step[r])]
        if not senders:
            return rounds
        busy: set[int] = set()
        sent: list[int] = []
        for r in senders:
            queue = sends[r][step[r]]
            for place, i in enumerate(queue):
                target = messages[i].target
                if step[target] == messages[i].received_in and target not in busy:
                    busy.add(target)
                    sent.append(i)
                    del queue[place]
                    break
        for i in sent:
            m = messages[i]
            rounds[i] = now
            left[m.source][m.sent_in] -= 1
            left[m.target][m.received_in] -= 1
        moved = {r for i in sent for r in (messages[i].source, messages[i].target)}
        now += 1
