"""Do all ranks mean the same call? Asked when a recipe is made, and when a rank waits.

Making a recipe runs an exchange: every rank's text of the call goes round in
ceil(log2 p) rounds, before any data moves. A rank that waits in a call that needed
no exchange reports, after a while, which call it is in; whoever knows the same number
as another call opens a dispute, in which all ranks vote with what they have on record
for that number. The same votes give the same verdict everywhere. A rank that refuses
a call, gives its communicator up or ends says so, and those who wait for it raise.

A call that ended in a refusal or a dispute is settled: what is said of it later means
nothing any more, so that a communicator on which no data had moved stays usable.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from hpcoll.errors import (
    CollectiveTimeout,
    HpcollError,
    MismatchError,
    PeerFailure,
    TransportError,
)
from hpcoll.runtime.mailbox import Mailbox
from hpcoll.runtime.record import (
    AGREEING,
    HISTORY,
    Record,
    Report,
    Spoken,
    call_words,
    verdict,
)

GRACE_S = 2.0
"""How long a dispute waits for the votes of ranks that say nothing."""

RECENT = 32
"""Past calls that an exchange compares as well."""

_SHARED_ERRORS = {e.__name__: e for e in (CollectiveTimeout, MismatchError, PeerFailure)}


class Agreement:
    """The agreement of one communicator's ranks.

    Parameters
    ----------
    mailbox : Mailbox
        Carries its letters.
    spoken : callable
        ``spoken(call)``: what this rank means by a call number; None where it has not
        come to it or has forgotten it.

    Attributes
    ----------
    torn : bool
        Whether data may have moved in the call for which it last raised an error: the
        communicator can't be used any more.
    """

    def __init__(self, mailbox: Mailbox, spoken: Callable[[int], Spoken | None]) -> None:
        self.mailbox = mailbox
        self.rank, self.size = mailbox.rank, mailbox.size
        self.said = Record()
        self.torn = False
        self._spoken = spoken
        self._settled: set[int] = set()
        self._lock = threading.RLock()

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
        PeerFailure, CollectiveTimeout, TransportError
            If a rank has ended or given up.
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
            if round_ == 0:
                letter["h"] = [self._digest(n) for n in range(call - RECENT, call)]
            self.mailbox.post(letter, [to])
            key, news = (call, round_, source), True
            while True:
                news = self.look() or news
                if news:
                    self.judge(call)
                    news = False
                found = self.said.exchange.pop(key, None)
                if found is not None:
                    break
                waiting([source])
            for t, m in found["v"]:
                views[t] = views.get(t, 0) | int(m, 16)
            known.update(dict(found["d"]))
            self._compare(call, found.get("h", []))
            if len(views) > 1:
                self._dispute(call)
        self._forget(call)
        self.said.reports = {r: x for r, x in self.said.reports.items() if x.call > call}
        return known

    def look(self) -> bool:
        """Take in all letters that have arrived; return whether there were any."""
        with self._lock:
            letters = self.mailbox.fetch()
            for sender, letter in letters:
                self._take(sender, letter)
        return bool(letters)

    def judge(self, call: int) -> None:
        """Raise if what the others said shows that `call` can't go on.

        Raises
        ------
        MismatchError
            If a rank refused the call or an earlier one, or is in another one.
        PeerFailure
            If a rank has ended.
        HpcollError
            If a rank has given up: the error for which it did.
        """
        with self._lock:
            for number in sorted(self.said.refusals):
                if number <= call:
                    self._raise_refusal(number)
            for number in sorted(self._disputed()):
                self._dispute(number)
            self.torn = True
            for sender, last in self.said.gone.items():
                if last < call:
                    raise PeerFailure(
                        f"rank {sender} has ended after call {last} and takes no part in call "
                        f"{call} ({call_words(self._spoken(call))})"
                    )
            for sender, (first, number, kind, text) in self.said.given_up.items():
                if first <= call:
                    error: type[HpcollError] = TransportError
                    if number == call:
                        error = _SHARED_ERRORS.get(kind, TransportError)
                    raise error(f"rank {sender} gave the communicator up in call {number}: {text}")

    def report(self, call: int, waits_for: list[int]) -> None:
        """Tell all ranks which call this one waits in."""
        spoken = self._spoken(call)
        if spoken is not None:
            self.mailbox.post({"k": "report", "c": call, "s": spoken, "w": waits_for})

    def refuse(self, call: int, error: BaseException) -> None:
        """Tell all ranks that this one refuses a call."""
        self._settle(call)
        self.mailbox.post({"k": "refuse", "c": call, "t": f"{type(error).__name__}: {error}"})

    def give_up(self, first: int, call: int, error: HpcollError) -> None:
        """Tell all ranks that this one can't use the communicator any more.

        Parameters
        ----------
        first : int
            The first call that it can't end; the others may still end earlier ones.
        call : int
            The call that failed.
        error : HpcollError
            Why.
        """
        if all(known > first for known, _, _, _ in self.said.given_up.values()):
            letter = {"k": "given up", "f": first, "c": call, "e": type(error).__name__}
            self.mailbox.post({**letter, "t": str(error)})

    def leave(self, call: int) -> None:
        """Say that this rank ends after a call.

        Said to the partners of the exchange alone, because all ranks end at the same
        time: whoever of them waits for this rank gives up and so tells all.
        """
        hops = [1 << k for k in range((self.size - 1).bit_length())]
        partners = {(self.rank + hop) % self.size for hop in [*hops, *(-h for h in hops)]}
        self.mailbox.post({"k": "gone", "c": call}, sorted(partners - {self.rank}))

    def _take(self, sender: int, letter: dict[str, Any]) -> None:
        said, kind, call = self.said, letter["k"], int(letter["c"])
        if kind == "given up":
            said.given_up[sender] = (int(letter["f"]), call, str(letter["e"]), str(letter["t"]))
        elif kind == "gone":
            said.gone[sender] = call
        elif call in self._settled:
            return
        elif kind == "exchange":
            said.exchange[call, int(letter["i"]), sender] = letter
        elif kind == "report":
            waits_for = [int(r) for r in letter["w"]]
            spoken = Spoken(*letter["s"])
            said.reports[sender] = Report(call, spoken, waits_for, time.monotonic())
        elif kind == "vote":
            said.votes.setdefault(call, {})[sender] = Spoken(*letter["s"])
        elif kind == "refuse":
            said.refusals.setdefault(call, {})[sender] = str(letter["t"])

    def _disputed(self) -> set[int]:
        """The calls, known to this rank, of which another one means something else."""
        found = {call for call in self.said.votes if self._spoken(call) is not None}
        for report in self.said.reports.values():
            mine = self._spoken(report.call)
            if mine is not None and not mine.fits(report.spoken):
                found.add(report.call)
        return found - self._settled

    def _raise_refusal(self, call: int) -> None:
        mine = self._spoken(call)
        rank, reason = min(self.said.refusals[call].items())
        self._settle(call)
        if mine is not None:
            self.torn = mine.stage != AGREEING
            raise MismatchError(f"rank {rank} refused call {call} ({call_words(mine)}): {reason}")

    def _dispute(self, call: int) -> None:
        """Vote, wait a little for the others' votes, and raise the verdict."""
        mine = self._spoken(call)
        if mine is None:
            return
        votes = self.said.votes.setdefault(call, {})
        for sender, report in self.said.reports.items():
            if report.call == call:
                votes.setdefault(sender, report.spoken)
        votes[self.rank] = mine
        self.mailbox.post({"k": "vote", "c": call, "s": mine})
        everyone = set(range(self.size))
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            self.look()
            if call in self.said.refusals:
                self._raise_refusal(call)
            if votes.keys() | self.said.gone.keys() | self.said.given_up.keys() >= everyone:
                break
            time.sleep(0.0005)
        self._settle(call)
        self.torn = any(v.stage != AGREEING for v in votes.values())
        raise MismatchError(verdict(call, votes, self.size))

    def _digest(self, call: int) -> int:
        """A call in a few bits; 0 where there is nothing to compare."""
        spoken = None if call in self._settled else self._spoken(call)
        return 0 if spoken is None else zlib.crc32(spoken.text.encode()) | 1

    def _compare(self, call: int, digests: list[int]) -> None:
        """Hold a neighbour's last calls against one's own: some differ and yet wait for no one."""
        for number, theirs in enumerate(digests, call - RECENT):
            mine = self._digest(number)
            if mine and theirs and mine != theirs:
                self._dispute(number)

    def _settle(self, call: int) -> None:
        """Forget a call, and whatever will be said of it."""
        with self._lock:
            self._settled.add(call)
            self.said.votes.pop(call, None)
            self.said.refusals.pop(call, None)
            self._forget(call)

    def _forget(self, call: int) -> None:
        """Drop letters of exchanges that are over."""
        with self._lock:
            self.said.exchange = {k: v for k, v in self.said.exchange.items() if k[0] > call}
            self._settled = {c for c in self._settled if c > call - HISTORY}
