"""What ranks say of calls, in letters and in words."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpcoll.errors import PeerFailure, TransportError
from hpcoll.schedule.symbols import rank_list

HISTORY = 4096
"""Calls that a rank remembers."""

AGREEING, AGREED, AGAIN = "agreeing", "agreed", "again"


class Spoken(NamedTuple):
    """What a rank means by a call number.

    Attributes
    ----------
    text : str
        The call in words, equal on two ranks only if their calls match.
    stage : str
        ``agreeing``: in the exchange, no data has moved; ``agreed``: past it;
        ``again``: without one, because the recipe is known.
    """

    text: str
    stage: str

    def fits(self, other: Spoken) -> bool:
        """Whether two ranks can have said this of one call."""
        return self.text == other.text and (self.stage == AGAIN) == (other.stage == AGAIN)


class Report(NamedTuple):
    """A rank that waits said in which call, for whom, and when."""

    call: int
    spoken: Spoken
    waits_for: list[int]
    heard_at: float


@dataclass
class Record:
    """What the other ranks have said.

    Attributes
    ----------
    reports : dict
        For each rank, its last report.
    votes : dict
        For each disputed call, what each rank means by it.
    refusals : dict
        For each call, the ranks that refused it, with the reason.
    given_up : dict
        The ranks that gave the communicator up: (first call that they can't end, call
        that failed, class of error, text).
    gone : dict
        The ranks that have ended, and their last call.
    exchange : dict
        Letters of exchanges that this rank has not come to: (call, round, sender).
    """

    reports: dict[int, Report] = field(default_factory=dict)
    votes: dict[int, dict[int, Spoken]] = field(default_factory=dict)
    refusals: dict[int, dict[int, str]] = field(default_factory=dict)
    given_up: dict[int, tuple[int, int, str, str]] = field(default_factory=dict)
    gone: dict[int, int] = field(default_factory=dict)
    exchange: dict[tuple[int, int, int], dict[str, Any]] = field(default_factory=dict)


def verdict(call: int, votes: dict[int, Spoken], size: int) -> str:
    """The text of a mismatch, the same on all ranks that saw the same votes.

    Parameters
    ----------
    call : int
        The call's number.
    votes : dict
        What each rank means by it.
    size : int
        Number of ranks.
    """
    one_text = len({v.text for v in votes.values()}) == 1
    views: dict[str, int] = {}
    for rank in sorted(votes):
        text, stage = votes[rank]
        if one_text:
            text += " as before" if stage == AGAIN else " for the first time (with other arguments)"
        views[text] = views.get(text, 0) | 1 << rank
    ordered = sorted(views.items(), key=lambda v: (v[1].bit_count(), -(v[1] & -v[1])))
    parts = [f"rank {rank_list(mask)} called {text}" for text, mask in ordered]
    missing = [r for r in range(size) if r not in votes]
    said = f"; rank {rank_words(missing)} said nothing" if missing else ""
    return f"call {call}: the ranks disagree: {', but '.join(parts)}{said}"


def trail(reports: dict[int, Report], me: int, call: int, waits_for: list[int]) -> str:
    """What is known of the ranks that `me` waits for, and of those that they wait for."""
    known: list[str] = []
    seen = {me}
    queue = list(waits_for)
    while queue and len(known) < 4:
        rank = queue.pop(0)
        if rank in seen:
            continue
        seen.add(rank)
        report = reports.get(rank)
        if report is None:
            known.append(f"rank {rank} has said nothing")
        elif report.call != call:
            ago = time.monotonic() - report.heard_at
            words = f"rank {rank} said {ago:.1f} s ago that it waits in call {report.call}"
            known.append(f"{words} ({call_words(report.spoken)}), not in call {call}")
        elif report.waits_for:
            known.append(f"rank {rank} itself waits for rank {rank_words(report.waits_for)}")
            queue = report.waits_for + queue
    return "; ".join(known)


def failure_of(error: TransportError, ranks: list[int]) -> TransportError:
    """A transport's error as PeerFailure where ranks are known to have died."""
    if ranks:
        return PeerFailure(f"rank {rank_words(ranks)} died ({error})")
    return error


def call_words(spoken: Spoken | None) -> str:
    """A call in words."""
    return "unknown" if spoken is None else spoken.text


def rank_words(ranks: list[int]) -> str:
    """Ranks as a person would write them: ``0-3, 6``."""
    return rank_list(sum(1 << r for r in set(ranks)))
