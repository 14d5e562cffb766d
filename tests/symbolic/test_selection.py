"""Which algorithm is chosen, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hpcoll.cost import Cost, cost_of
from hpcoll.errors import RegistryError
from hpcoll.schedule import registry, send
from hpcoll.schedule.collectives import COLLECTIVES
from hpcoll.schedule.ops import BUILTIN, make_op
from hpcoll.selection import NATIVE_FROM, choose, unfit

SUM = BUILTIN["sum"]
FIRST = make_op(lambda a, b: a, commute=False, name="first")


def op_of(collective: str) -> Any:
    return SUM if COLLECTIVES[collective].reduces else None


@pytest.mark.parametrize("collective", list(COLLECTIVES))
@pytest.mark.parametrize("size", [1, 2, 3, 8, 13, 64, 300])
def test_every_call_is_served(collective: str, size: int) -> None:
    for nbytes in (0, 8, 1 << 12, 1 << 26):
        choice = choose(collective, size, nbytes, dtype="float16", op=op_of(collective))
        assert choice.algorithm.collective == collective
        assert choice.reason


def test_small_messages_take_few_steps_large_ones_few_bytes() -> None:
    small = choose("allreduce", 16, 8, dtype="float32", op=SUM)
    assert small.algorithm.name == "recursive_doubling"
    large = choose("allreduce", 16, 1 << 26, dtype="float32", op=SUM)
    cost = cost_of(large.algorithm, 16, 1 << 26)
    assert cost is not None
    assert cost.nbytes == 2 * (1 << 26) * 15 // 16, "the least that can be"


@pytest.mark.parametrize("collective", ["scan", "exscan"])
def test_a_chain_is_seen_to_be_long(collective: str) -> None:
    """One rank's own schedule is short; the wait for all before it counts."""
    chain = cost_of(registry.find(f"{collective}/chain"), 32, 8)
    doubling = cost_of(registry.find(f"{collective}/recursive_doubling"), 32, 8)
    assert chain is not None
    assert doubling is not None
    assert (chain.steps, doubling.steps) == (31, 5)
    assert choose(collective, 32, 8, dtype="int32", op=SUM).algorithm.name == "recursive_doubling"


def test_ranks_that_only_hand_on_do_not_hide_the_others() -> None:
    """Rank 0 of a fold for 1000 ranks does next to nothing; the others do 9 exchanges."""
    cost = cost_of(registry.find("allreduce/recursive_doubling"), 1000, 1000)
    assert cost is not None
    assert cost.steps >= 10
    assert cost.nbytes >= 10_000


def test_operators_that_do_not_commute_keep_rank_order() -> None:
    ring = registry.find("allreduce/ring")
    reason = unfit(ring, 4, dtype="float64", op=FIRST)
    assert reason is not None
    assert "doesn't commute" in reason
    choice = choose("allreduce", 4, 1 << 26, dtype="float64", op=FIRST)
    assert choice.algorithm.name not in ("ring", "native")
    with pytest.raises(RegistryError, match=r"allreduce/ring.*first doesn't commute"):
        choose("allreduce", 4, 8, dtype="float64", op=FIRST, pinned="ring")


@pytest.mark.parametrize(
    ("pinned", "size", "text"),
    [
        ("rign", 4, "did you mean allreduce/ring"),
        ("allgather/ring", 4, "no algorithm for allreduce"),
        ("ring:radix=2", 4, "no tunable 'radix'"),
    ],
)
def test_a_pin_that_does_not_fit_is_an_error(pinned: str, size: int, text: str) -> None:
    with pytest.raises(RegistryError, match=text):
        choose("allreduce", size, 8, dtype="float32", op=SUM, pinned=pinned)


def test_a_pin_whose_ranks_do_not_fit_is_an_error() -> None:
    with pytest.raises(RegistryError, match="power of two"):
        choose("allgather", 6, 8, dtype="float32", pinned="recursive_doubling")


def test_native_is_taken_where_it_was_measured_faster() -> None:
    least, why = NATIVE_FROM["mpi", "allgather"]
    below = choose("allgather", 4, least - 1, dtype="float32")
    above = choose("allgather", 4, least, dtype="float32")
    assert not below.algorithm.native
    assert above.algorithm.native
    assert why in above.reason
    assert not choose("allgather", 4, 2**31, dtype="float32").algorithm.native, "no large counts"
    assert "allgather/native" in str(below)


def test_native_is_refused_where_it_breaks_a_rule() -> None:
    maximum = BUILTIN["max"]
    with pytest.raises(RegistryError, match="doesn't propagate NaN"):
        choose("allreduce", 2, 8, dtype="float32", op=maximum, pinned="native")
    assert choose("allreduce", 2, 8, dtype="int32", op=maximum, pinned="native").algorithm.native
    with pytest.raises(RegistryError, match="no reduction over bfloat16"):
        choose("allreduce", 2, 8, dtype="bfloat16", op=SUM, pinned="native")


def test_an_algorithm_from_outside_is_proved_before_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_algorithms", dict(registry._algorithms))
    registry.load_all()

    @registry.algorithm("broadcast")
    def tells_nobody(p: Any) -> Iterator[Any]:
        if p.rank == 0 and p.size > 2:
            yield send(1, 0)

    with pytest.raises(RegistryError, match="its proof fails"):
        choose("broadcast", 3, 8, dtype="float32", pinned="tells_nobody")
    assert choose("broadcast", 3, 8, dtype="float32").algorithm.name != "tells_nobody"


def test_the_explanation_names_every_candidate() -> None:
    choice = choose("allreduce", 4, 1 << 16, dtype="float32", op=SUM)
    text = str(choice)
    assert text.startswith(choice.algorithm.spec)
    for a in registry.algorithms("allreduce"):
        assert a.full_name in text
    assert all(isinstance(cost, (Cost, str)) for _, cost in choice.candidates)


def test_where_ranks_outnumber_cores_messages_cost_more() -> None:
    a = registry.find("allreduce/ring")
    assert cost_of(a, 8, 8, crowded=True).time_us > cost_of(a, 8, 8).time_us  # type: ignore[union-attr]


def test_segments_follow_from_the_message_size_unless_they_are_given() -> None:
    sizes = [8, 1 << 16, 1 << 24]
    chosen = [choose("broadcast", 8, n, dtype="float32", pinned="chain") for n in sizes]
    segments = [dict(c.algorithm.tunables)["segments"] for c in chosen]
    assert segments[0] == 1
    assert segments == sorted(set(segments))
    given = choose("broadcast", 8, 1 << 24, dtype="float32", pinned="chain:segments=3")
    assert given.algorithm.spec == "broadcast/chain:segments=3"
