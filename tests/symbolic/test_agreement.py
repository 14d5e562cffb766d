"""The agreement of ranks, each a thread with a mailbox that is a queue: no MPI."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hpcoll.errors import CollectiveTimeout, HpcollError, MismatchError, PeerFailure
from hpcoll.runtime import agreement
from hpcoll.runtime.agreement import Agreement
from hpcoll.runtime.record import AGAIN, AGREED, AGREEING, Report, Spoken, trail, verdict


class Post:
    """All letters on their way; delivered late and in any order between different pairs."""

    def __init__(self, size: int, seed: int | None = None) -> None:
        self.boxes: list[dict[int, list[str]]] = [{} for _ in range(size)]
        self.lock = threading.Lock()
        self.chance = None if seed is None else random.Random(seed)


class FakeMailbox:
    """One rank's end of the post."""

    def __init__(self, post: Post, rank: int) -> None:
        self._post = post
        self.rank, self.size = rank, len(post.boxes)

    def post(self, letter: dict[str, Any], peers: list[int] | None = None) -> None:
        """Send a letter, as JSON as the real one does."""
        others = [r for r in range(self.size) if r != self.rank]
        with self._post.lock:
            for peer in others if peers is None else peers:
                self._post.boxes[peer].setdefault(self.rank, []).append(json.dumps(letter))

    def fetch(self) -> list[tuple[int, dict[str, Any]]]:
        """Some of the letters that wait, those of one sender in order."""
        found = []
        with self._post.lock:
            for sender, waiting in self._post.boxes[self.rank].items():
                chance = self._post.chance
                take = len(waiting) if chance is None else chance.randint(0, len(waiting))
                found += [(sender, json.loads(x)) for x in waiting[:take]]
                del waiting[:take]
        return found


class Rank:
    """A rank with a book of its calls, as the session keeps it."""

    def __init__(self, post: Post, rank: int) -> None:
        self.rank = rank
        self.agreement = Agreement(FakeMailbox(post, rank), self.spoken)  # type: ignore[arg-type]
        self.calls: dict[int, Spoken] = {}
        self.last = 0

    def spoken(self, call: int) -> Spoken | None:
        """What this rank means by a call."""
        return self.calls.get(call)

    def agree(self, text: str, data: Any = None, limit_s: float = 10.0) -> dict[int, Any]:
        """Agree on the next call, as a recipe miss does."""
        self.last += 1
        self.calls[self.last] = Spoken(text, AGREEING)
        deadline = time.monotonic() + limit_s

        def waiting(missing: list[int]) -> None:
            if time.monotonic() > deadline:
                raise CollectiveTimeout(f"waited for {missing}")
            time.sleep(0.0005)

        known = self.agreement.exchange(self.last, text, data, waiting)
        self.calls[self.last] = Spoken(text, AGREED)
        return known

    def run(self, text: str, stalls: bool = True) -> None:
        """Make a call whose recipe is known; if it stalls, report and wait for an error."""
        self.last += 1
        self.calls[self.last] = Spoken(text, AGAIN)
        deadline = time.monotonic() + 10
        if stalls:
            self.agreement.report(self.last, [])
        while stalls and time.monotonic() < deadline:
            self.agreement.look()
            self.agreement.judge(self.last)
            time.sleep(0.0005)

    def refuse(self, error: HpcollError) -> None:
        """Refuse the next call."""
        self.last += 1
        self.calls[self.last] = Spoken("refused", AGREED)
        self.agreement.refuse(self.last, error)


def on_ranks(
    size: int, work: Callable[[Rank], Any], seed: int | None = None
) -> list[tuple[Any, str]]:
    """Run something on all ranks at once; return for each its result or error, with its text."""
    post = Post(size, seed)
    ranks = [Rank(post, r) for r in range(size)]
    found: list[tuple[Any, str]] = [(None, "did not end")] * size

    def one(rank: Rank) -> None:
        try:
            found[rank.rank] = (work(rank), "")
        except Exception as error:
            found[rank.rank] = (type(error), str(error))

    threads = [threading.Thread(target=one, args=(r,), daemon=True) for r in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_all_learn_what_each_brings(size: int) -> None:
    def work(rank: Rank) -> list[dict[int, Any]]:
        return [rank.agree(f"call {n}", [rank.rank, n]) for n in range(5)]

    for result, _ in on_ranks(size, work, seed=size):
        assert result == [{r: [r, n] for r in range(size)} for n in range(5)]


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_mismatch_in_an_exchange_leaves_it_usable(size: int) -> None:
    def work(rank: Rank) -> list[str]:
        texts = []
        for turn in range(4):
            time.sleep(0.01 * random.random())
            odd = rank.rank == turn % size
            with pytest.raises(MismatchError) as caught:
                rank.agree("odd" if odd else "usual")
            rank.agreement.report(rank.last, [])  # letters of calls that are over
            texts.append(str(caught.value))
            assert not rank.agreement.torn
            assert len(rank.agree("same")) == size
        return texts

    found = on_ranks(size, work, seed=size)
    assert len({tuple(result) for result, _ in found}) == 1, found
    for turn, text in enumerate(found[0][0]):
        assert f"rank {turn % size} called odd" in text


def test_mismatch_of_known_calls_tears() -> None:
    def work(rank: Rank) -> bool:
        with pytest.raises(MismatchError, match="rank 1 called b, but rank 0, 2 called a"):
            rank.run("b" if rank.rank == 1 else "a")
        return rank.agreement.torn

    assert on_ranks(3, work) == [(True, "")] * 3


def test_miss_against_hit_tears_all() -> None:
    """One rank agrees while the others run, with other words or with the same."""
    for text in ("a", "b"):

        def work(rank: Rank, text: str = text) -> tuple[bool, str]:
            with pytest.raises(MismatchError) as caught:
                rank.run("a") if rank.rank else rank.agree(text)
            return rank.agreement.torn, str(caught.value)

        found = on_ranks(3, work)
        assert {result[0] for result, _ in found} == {True}
        assert len({result[1] for result, _ in found}) == 1
    assert "rank 0 called b, but rank 1-2 called a" in found[0][0][1]


def test_fast_ranks_wait_in_later_calls() -> None:
    """A slow rank of an exchange sees reports of the run that follows, and of the next call."""

    def work(rank: Rank) -> int:
        for _ in range(20):
            if rank.rank == 2:
                time.sleep(0.005)
            rank.agree("x")
            for _ in range(3):
                rank.agreement.report(rank.last, [2])
                rank.run("y", stalls=False)
                rank.agreement.report(rank.last, [2])
        return rank.last

    assert on_ranks(4, work, seed=1) == [(80, "")] * 4


def test_calls_that_waited_for_no_one_are_compared_later() -> None:
    def work(rank: Rank) -> bool:
        rank.agree("start")
        rank.run("root 0" if rank.rank else "root 1", stalls=False)
        rank.run("same", stalls=False)
        with pytest.raises(MismatchError, match=r"call 2: .*rank 0 called root 1, but rank 1-2"):
            rank.agree("next")
        return rank.agreement.torn

    assert on_ranks(3, work) == [(True, "")] * 3


def test_refusals() -> None:
    """The refused call ends everywhere; the next is fine if no data had moved."""

    def work(rank: Rank) -> list[bool]:
        torn = []
        for turn in range(3):
            if rank.rank == turn:
                rank.refuse(MismatchError("no"))
            else:
                with pytest.raises(MismatchError, match=f"rank {turn} refused call .*: no"):
                    rank.agree("a")
                torn.append(rank.agreement.torn)
            rank.agree("fine")
        if rank.rank == 0:
            rank.refuse(MismatchError("no"))
            return [*torn, True]
        with pytest.raises(MismatchError, match="rank 0 refused"):
            rank.run("known")
        return [*torn, rank.agreement.torn]

    assert on_ranks(3, work, seed=3) == [([False, False, True], "")] * 3


def test_all_refuse() -> None:
    def work(rank: Rank) -> int:
        for _ in range(10):
            rank.refuse(MismatchError("no"))
        return len(rank.agree("fine"))

    assert on_ranks(4, work, seed=4) == [(4, "")] * 4


def test_refusal_and_mismatch_at_once() -> None:
    """Whoever refuses does not vote; the others must not wait for its vote."""

    def work(rank: Rank) -> float:
        start = time.monotonic()
        if rank.rank == 1:
            rank.refuse(MismatchError("no"))
        else:
            with pytest.raises(MismatchError, match="rank 1 refused"):
                rank.agree("a" if rank.rank else "b")
        rank.agree("fine")
        return time.monotonic() - start

    found = on_ranks(4, work)
    assert all(isinstance(took, float) and took < agreement.GRACE_S for took, _ in found), found


def test_a_rank_that_computes_gets_the_verdict_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "GRACE_S", 0.1)

    def work(rank: Rank) -> str:
        if rank.rank == 2:
            time.sleep(0.5)
        with pytest.raises(MismatchError) as caught:
            rank.agree("odd" if rank.rank == 1 else "usual")
        rank.agree("fine")
        return str(caught.value)

    found = [result for result, _ in on_ranks(3, work)]
    assert found[0] == found[1]
    assert "rank 2 said nothing" in found[0]
    assert "rank 1 called odd, but rank 0, 2 called usual" in found[2]


def test_gone_and_given_up() -> None:
    def gone(rank: Rank) -> None:
        rank.agree("a")
        if rank.rank == 1:
            rank.agreement.leave(rank.last)
        else:
            rank.agree("b")

    found = on_ranks(4, gone)
    assert [kind for kind, _ in found] == [PeerFailure, None, PeerFailure, PeerFailure]
    assert "rank 1 has ended after call 1 and takes no part in call 2 (b)" in found[0][1]

    def given_up(rank: Rank) -> None:
        rank.agree("a")
        if rank.rank == 1:
            rank.agreement.give_up(2, 2, CollectiveTimeout("waited"))
        else:
            rank.agree("b")

    found = on_ranks(3, given_up)
    assert [kind for kind, _ in found] == [CollectiveTimeout, None, CollectiveTimeout]
    assert found[0][1] == "rank 1 gave the communicator up in call 2: waited"


def test_verdict_words() -> None:
    a, b = Spoken("a", AGAIN), Spoken("b", AGAIN)
    assert verdict(7, {0: a, 1: b}, 2) == (
        "call 7: the ranks disagree: rank 1 called b, but rank 0 called a"
    )
    assert verdict(7, {0: b, 1: a, 2: a, 3: a}, 5) == (
        "call 7: the ranks disagree: rank 0 called b, but rank 1-3 called a; rank 4 said nothing"
    )
    told = verdict(7, {0: Spoken("a", AGREEING), 1: a}, 2)
    assert "rank 0 called a for the first time" in told
    assert "rank 1 called a as before" in told


def test_trail_words() -> None:
    x = Spoken("x", AGAIN)
    now = time.monotonic()
    reports = {1: Report(5, x, [2], now), 3: Report(4, x, [1], now - 2)}
    told = "rank 1 itself waits for rank 2; rank 2 has said nothing"
    assert trail(reports, 0, 5, [1]) == told
    assert trail(reports, 0, 5, [3]).startswith("rank 3 said 2.0 s ago that it waits in call 4 (x)")
    circle = {1: Report(5, x, [0], now)}
    assert trail(circle, 0, 5, [1]) == "rank 1 itself waits for rank 0"
    long = {r: Report(5, x, [r + 1], now) for r in range(1, 100)}
    assert trail(long, 0, 5, [1]).count(";") == 3
