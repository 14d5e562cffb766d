"""Do all ranks mean the same call? Asked when a recipe is made, and when a rank waits.

Making a recipe runs an exchange: every rank's text of the call goes round in
ceil(log2 p) rounds, before any data moves. A rank that waits in a call that needed
no exchange reports, after a while, which call it is in; whoever sees another text for
the same call number opens a dispute, in which all ranks vote with the text that
they have on record for that call. The same votes give the same verdict everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hpcoll.errors import HpcollError, MismatchError, PeerFailure, TransportError
from hpcoll.runtime.mailbox import Mailbox
from hpcoll.schedule.symbols import rank_list

GRACE_S = 2.0
"""How long a dispute waits for the votes of ranks that say nothing."""

HISTORY = 4096
"""Calls that a rank remembers."""


@dataclass
class Record:
    """What the other ranks have said.

    Attributes
    ----------
    reports : dict
        For each rank, the last call that it said it waits in: (call, text, waits for).
    votes : dict
        For each disputed call, the text of each rank.
    refusals : dict
        For each call, the ranks that refused it, with the reason.
    gone : dict
        The ranks that have ended, and their last call.
    exchange : dict
        Letters of exchanges that this rank has not come to: (call, round, sender).
    """

    reports: dict[int, tuple[int, str, list[int]]] = field(default_factory=dict)
    votes: dict[int, dict[int, str]] = field(default_factory=dict)
    refusals: dict[int, dict[int, str]] = field(default_factory=dict)
    gone: dict[int, int] = field(default_factory=dict)
    exchange: dict[tuple[int, int, int], dict[str, Any]] = field(default_factory=dict)


class Agreement:
    """The agreement of one communicator's ranks.

    Parameters
    ----------
    mailbox : Mailbox
        Carries its letters.
    text_of : callable
        ``text_of(call)``: this rank's text of a call number; None where it has not
        come to it or has forgotten it.
    """

    def __init__(self, mailbox: Mailbox, text_of: Callable[[int], str | None]) -> None:
        self.mailbox = mailbox
        self.rank, self.size = mailbox.rank, mailbox.size
        self.said = Record()
        self._text_of = text_of
        self._voted: set[int] = set()

    def exchange(
        self, call: int, text: str, data: Any, waiting: Callable[[list[int]], None]
    ) -> dict[int, Any]:
        """Agree on a call, and learn what every rank brings to it.

        Parameters
        ----------
        call : int
            The call's number.
        text : str
            What the call is, in words equal on all ranks.
        data : JSON value
            What this rank brings, such as its counts.
        waiting : callable
            Called again and again while ranks are missing, with those waited for;
            may raise.

        Returns
        -------
        dict
            What each rank brought.

        Raises
        ------
        MismatchError
            On all ranks, if any rank's text differs or a rank refuses the call.
        """
        known: dict[int, Any] = {self.rank: data}
        views: dict[str, int] = {text: 1 << self.rank}
        for round_ in range((self.size - 1).bit_length()):
            to = (self.rank + (1 << round_)) % self.size
            source = (self.rank - (1 << round_)) % self.size
            letter = {
                "k": "exchange", "c": call, "i": round_,
                "v": [[t, f"{m:x}"] for t, m in views.items()],
                "d": [[r, d] for r, d in known.items()],
            }  # fmt: skip
            self.mailbox.post(to, letter)
            key = (call, round_, source)
            while True:
                self.look()
                self.judge(call)
                found = self.said.exchange.pop(key, None)
                if found is not None:
                    break
                waiting([source])
            for t, m in found["v"]:
                views[t] = views.get(t, 0) | int(m, 16)
            known.update(dict(found["d"]))
            if len(views) > 1:
                self._dispute(call, text)
        self._forget(call)
        return known

    def look(self) -> None:
        """Take in all letters that have arrived."""
        for sender, letter in self.mailbox.fetch():
            kind, call = letter["k"], int(letter["c"])
            if kind == "exchange":
                self.said.exchange[call, int(letter["i"]), sender] = letter
            elif kind == "report":
                self.said.reports[sender] = (call, str(letter["t"]), list(letter["w"]))
            elif kind == "vote":
                self.said.votes.setdefault(call, {})[sender] = str(letter["t"])
            elif kind == "refuse":
                self.said.refusals.setdefault(call, {})[sender] = str(letter["t"])
            elif kind == "gone":
                self.said.gone[sender] = call

    def judge(self, call: int) -> None:
        """Raise if what the others said shows that `call` can't go on.

        Raises
        ------
        MismatchError
            If a rank refused the call, or is in another one.
        PeerFailure
            If a rank has ended.
        """
        refused = self.said.refusals.get(call)
        if refused:
            rank, reason = min(refused.items())
            raise MismatchError(f"rank {rank} refused call {call}: {reason}")
        for disputed in sorted(self.said.votes):
            mine = self._text_of(disputed)
            if mine is not None and disputed not in self._voted:
                self._dispute(disputed, mine)
        for sender, (number, text, _) in list(self.said.reports.items()):
            mine = self._text_of(number)
            if mine is not None and mine != text:
                self.said.votes.setdefault(number, {})[sender] = text
                self._dispute(number, mine)
        for sender, last in self.said.gone.items():
            if last < call:
                raise PeerFailure(
                    f"rank {sender} has ended after call {last} and takes no part in call {call} "
                    f"({self._text_of(call)})"
                )

    def report(self, call: int, text: str, waits_for: list[int]) -> None:
        """Tell all ranks which call this one waits in."""
        self.mailbox.post_all({"k": "report", "c": call, "t": text, "w": waits_for})

    def refuse(self, call: int, error: HpcollError) -> None:
        """Tell all ranks that this one refuses a call."""
        self.mailbox.post_all({"k": "refuse", "c": call, "t": f"{type(error).__name__}: {error}"})

    def leave(self, call: int) -> None:
        """Tell all ranks that this one ends after a call."""
        self.mailbox.post_all({"k": "gone", "c": call, "t": ""})

    def silent(self, call: int, waited_for: list[int]) -> str:
        """What is known of the ranks that one waits for, in words."""
        parts = []
        for rank in waited_for:
            report = self.said.reports.get(rank)
            if report is None:
                parts.append(f"rank {rank} has not been heard of since")
            elif report[0] < call:
                parts.append(f"rank {rank} is still in call {report[0]} ({report[1]})")
            elif report[2]:
                parts.append(f"rank {rank} itself waits for rank {_list(report[2])}")
        return "; ".join(parts)

    def _dispute(self, call: int, mine: str) -> None:
        """Vote, wait for the others' votes, and raise the verdict."""
        votes = self.said.votes.setdefault(call, {})
        votes[self.rank] = mine
        self._voted.add(call)
        self.mailbox.post_all({"k": "vote", "c": call, "t": mine})
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            self.look()
            if all(r in votes or r in self.said.gone for r in range(self.size)):
                break
            time.sleep(0.0005)
        del self.said.votes[call]
        raise MismatchError(verdict(call, votes, self.size))

    def _forget(self, call: int) -> None:
        """Drop what was said about calls that are over."""
        said = self.said
        said.exchange = {k: v for k, v in said.exchange.items() if k[0] > call}
        for table in (said.votes, said.refusals):
            for old in [c for c in table if c < call - HISTORY]:
                del table[old]


def verdict(call: int, votes: dict[int, str], size: int) -> str:
    """The text of a mismatch, the same on all ranks that saw the same votes.

    Parameters
    ----------
    call : int
        The call's number.
    votes : dict
        The text of each rank.
    size : int
        Number of ranks.
    """
    views: dict[str, int] = {}
    for rank in sorted(votes):
        views[votes[rank]] = views.get(votes[rank], 0) | 1 << rank
    ordered = sorted(views.items(), key=lambda v: (-v[1].bit_count(), v[1] & -v[1]))
    parts = [f"rank {rank_list(mask)} called {text}" for text, mask in ordered[::-1]]
    missing = [r for r in range(size) if r not in votes]
    said = f"; rank {_list(missing)} said nothing" if missing else ""
    return f"call {call}: the ranks disagree: {', but '.join(parts)}{said}"


def _list(ranks: list[int]) -> str:
    return rank_list(sum(1 << r for r in ranks))


def failure_of(error: TransportError, ranks: list[int]) -> TransportError:
    """A transport's error as PeerFailure where ranks are known to have died."""
    if ranks:
        return PeerFailure(f"rank {_list(ranks)} died ({error})")
    return error
