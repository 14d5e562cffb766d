"""Which call has which number on this rank, for when ranks disagree.

The engine writes the signature of every run into a ring of numbers; texts are kept once
for each signature. Calls that all ranks agreed on, and those that ran nothing, are kept
with the words that were agreed.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from hpcoll.runtime import words
from hpcoll.runtime.record import AGAIN, AGREED, AGREEING, HISTORY, Spoken


def signature_of(text: str) -> int:
    """64 bits of a call's text, as a signed integer."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class CallBook:
    """The calls of one communicator on this rank.

    Attributes
    ----------
    agreeing : str or None
        Text of the next call, while the ranks agree on it.
    """

    def __init__(self) -> None:
        self.agreeing: str | None = None
        self._table: NDArray[np.int64] = np.zeros(words.CHANNEL_WORDS, np.int64)
        self._history = np.zeros(HISTORY, np.int64)
        self._texts: dict[int, str] = {}
        self._agreed: dict[int, str] = {}

    def attach(self, table: NDArray[np.int64]) -> None:
        """Let the engine count calls in a channel's table."""
        table[words.HISTORY] = self._history.ctypes.data
        table[words.HISTORY_MASK] = HISTORY - 1
        self._table = table

    def stop(self) -> None:
        """Let the engine run nothing any more."""
        self._table[words.USABLE] = 0

    @property
    def last(self) -> int:
        """Number of the last call."""
        return int(self._table[words.CALLS])

    def sign(self, text: str) -> int:
        """Remember a call's text; return its signature."""
        signature = signature_of(text)
        self._texts[signature] = text
        return signature

    def count(self, text: str) -> int:
        """Take a call number for a call that runs nothing; return it."""
        self._table[words.CALLS] += 1
        self.agree(self.last, text)
        return self.last

    def agree(self, call: int, text: str) -> None:
        """Keep the words in which all ranks agreed on a call."""
        self._agreed[call] = text
        if len(self._agreed) > 2 * HISTORY:
            self._agreed = {c: t for c, t in self._agreed.items() if c > call - HISTORY}

    def skip_unmade(self) -> None:
        """Pass over a number that all ranks agreed on, and for which then none ran anything."""
        if self.last + 1 in self._agreed:
            self._table[words.CALLS] += 1

    def spoken(self, call: int) -> Spoken | None:
        """What this rank means by a call; None where it has not come to it or forgot it."""
        if self.agreeing is not None and call == self.last + 1:
            return Spoken(self.agreeing, AGREEING)
        if not max(0, self.last - HISTORY) < call <= self.last:
            return None
        if call in self._agreed:
            return Spoken(self._agreed[call], AGREED)
        text = self._texts.get(int(self._history[call & (HISTORY - 1)]))
        return None if text is None else Spoken(text, AGAIN)
