"""Steps in words and as JSON."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from hpcoll.schedule.operations import (
    Chunk,
    Copy,
    Fold,
    Incoming,
    Operation,
    Place,
    Recv,
    Send,
    Step,
)


def chunk_list(chunks: Sequence[Chunk], limit: int | None = None) -> str:
    """Chunks in words, runs of numbers joined: ``0-3,6``.

    With `limit`, only the first so many runs are written, and how many chunks remain.
    """
    runs: list[tuple[str, int]] = []
    start = previous = None
    for chunk in chunks:
        if isinstance(chunk, int):
            if start is not None and previous is not None and chunk == previous + 1:
                previous = chunk
                runs[-1] = (f"{start}-{chunk}", runs[-1][1] + 1)
                continue
            start = previous = chunk
            runs.append((str(chunk), 1))
        else:
            start = previous = None
            runs.append((_chunk(chunk), 1))
    if limit is not None and len(runs) > limit:
        rest = sum(n for _, n in runs[limit:])
        return ",".join(text for text, _ in runs[:limit]) + f" and {rest} more"
    return ",".join(text for text, _ in runs)


def _chunk(chunk: Hashable) -> str:
    if isinstance(chunk, Place):
        slot = f",{_chunk(chunk.slot)}" if chunk.slot else ""
        return f"{chunk.buffer}({_chunk(chunk.chunk)}{slot})"
    if isinstance(chunk, tuple):
        return f"({','.join(_chunk(c) for c in chunk)})"
    return str(chunk)


def operation_text(operation: Operation, limit: int | None = None) -> str:
    """One operation in words: ``send 3 -> rank 1``, ``recv_reduce 2 <- rank 3``."""
    if isinstance(operation, Send):
        peers = chunk_list(operation.peers)
        to = f"rank{'s' if len(operation.peers) > 1 else ''} {peers}{_lane(operation.lane)}"
        if not operation.chunks:
            return f"signal -> {to}"
        return f"send {chunk_list(operation.chunks, limit)} -> {to}"
    if isinstance(operation, Recv):
        source = f"rank {operation.peer}{_lane(operation.lane)}"
        if not operation.chunks:
            return f"wait <- {source}"
        return f"recv {chunk_list(operation.chunks, limit)} <- {source}"
    if isinstance(operation, Copy):
        return f"copy {chunk_list(operation.to, limit)} <- {chunk_list(operation.source, limit)}"
    into = chunk_list(operation.into, limit)
    first, last = operation.operands[0], operation.operands[-1]
    if len(operation.operands) == 2:
        if first == operation.into and isinstance(last, Incoming):
            return f"recv_reduce {into} <- rank {last.peer}{_lane(last.lane)}"
        if last == operation.into and isinstance(first, Incoming):
            return f"recv_reduce {into} <- rank {first.peer}{_lane(first.lane)} (first)"
    parts = [
        f"rank {o.peer}{_lane(o.lane)}" if isinstance(o, Incoming) else chunk_list(o, limit)
        for o in operation.operands
    ]
    return f"fold {into} <- {' + '.join(parts)}"


def _lane(lane: int) -> str:
    return f" lane {lane}" if lane else ""


def step_text(step: Step, limit: int | None = None) -> str:
    """One step in words."""
    return "; ".join(operation_text(o, limit) for o in step) or "nothing"


def step_json(step: Step) -> list[dict[str, Any]]:
    """One step as JSON: chunks as texts, peers as numbers."""
    return [_operation_json(o) for o in step]


def _operation_json(operation: Operation) -> dict[str, Any]:
    if isinstance(operation, Send):
        return {
            "op": "send",
            "peers": list(operation.peers),
            "chunks": _chunks_json(operation.chunks),
            "lane": operation.lane,
        }
    if isinstance(operation, Recv):
        return {
            "op": "recv",
            "peer": operation.peer,
            "chunks": _chunks_json(operation.chunks),
            "lane": operation.lane,
        }
    if isinstance(operation, Copy):
        return {
            "op": "copy",
            "to": _chunks_json(operation.to),
            "from": _chunks_json(operation.source),
        }
    assert isinstance(operation, Fold)
    return {
        "op": "fold",
        "into": _chunks_json(operation.into),
        "operands": [
            {"peer": o.peer, "lane": o.lane}
            if isinstance(o, Incoming)
            else {"chunks": _chunks_json(o)}
            for o in operation.operands
        ],
    }


def _chunks_json(chunks: Sequence[Chunk]) -> list[int | str]:
    return [c if isinstance(c, int) else _chunk(c) for c in chunks]
