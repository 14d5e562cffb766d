"""How long a wait has lasted, and what follows from that."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

from hpcoll.errors import CollectiveTimeout

REPORT_AGAIN_S = 10.0
LOOK_AGAIN_S = 0.1
_GAP_S = 1.0
_SHORT_NAP_S, _LONG_NAP_S = 20e-6, 1e-3


class Patience:
    """How long one wait has lasted, and what follows from that.

    Only time spent waiting counts: a rank that computes between two tests of its
    request has not waited for anyone.

    Attributes
    ----------
    waited_s : float
        Seconds of waiting.
    still_s : float
        Seconds of waiting since something moved.
    timeout_s : float
        Limit of `waited_s`.
    """

    __slots__ = (
        "_look_at_s", "_looked_at", "_report_at_s", "_warned", "still_s", "timeout_s", "waited_s",
    )  # fmt: skip

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.waited_s = self.still_s = 0.0
        self._looked_at = time.monotonic()
        self._report_at_s = 0.0
        self._look_at_s = LOOK_AGAIN_S
        self._warned = False

    def tick(self) -> None:
        """Count the time since the last tick, as long as that can have been waiting."""
        now = time.monotonic()
        passed = min(now - self._looked_at, _GAP_S)
        self.waited_s += passed
        self.still_s += passed
        self._looked_at = now

    def moved(self) -> None:
        """Note that something moved."""
        self.still_s = self._report_at_s = 0.0
        self._look_at_s = LOOK_AGAIN_S

    def look_is_due(self) -> bool:
        """Whether it is time to see who is still there."""
        if self.still_s < self._look_at_s:
            return False
        self._look_at_s = self.still_s + LOOK_AGAIN_S
        return True

    def report_is_due(self, stall_s: float) -> bool:
        """Whether the others should be told of this wait, now and then."""
        if self.still_s < max(stall_s, self._report_at_s):
            return False
        self._report_at_s = self.still_s + REPORT_AGAIN_S
        return True

    def complain(self, warn_s: float, text: Callable[[str], str]) -> None:
        """Warn once after a while, and raise at the time limit.

        Parameters
        ----------
        warn_s : float
            Seconds before the warning.
        text : callable
            ``text("30 s")``: what to say.

        Raises
        ------
        CollectiveTimeout
            At the limit.
        """
        failed = self.waited_s >= self.timeout_s
        if not failed and (self._warned or self.waited_s < warn_s):
            return
        said = text(f"{self.waited_s:.1f}".removesuffix(".0") + " s")
        if failed:
            raise CollectiveTimeout(said)
        self._warned = True
        warnings.warn(said, RuntimeWarning, stacklevel=2)

    def nap(self) -> None:
        """Give way; the longer nothing moved, the longer."""
        time.sleep(nap_s(self.still_s))


def nap_s(still_s: float) -> float:
    """How long to sleep between two looks when nothing has moved for so long."""
    return min(max(_SHORT_NAP_S, still_s / 1000), _LONG_NAP_S)
