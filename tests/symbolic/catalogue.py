"""What each algorithm must cost and keep: formulas of the papers, not read off the schedules.

Costs follow `hpcoll.schedule.counts`: rounds where a rank sends one message and receives
one at a time; bytes of the busiest direction and bytes reduced of the busiest rank, in
units of n. Where the basis says "derived", the formula was worked out by hand from what
the algorithm does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

Cost: TypeAlias = Callable[[int], int | Fraction]
Where: TypeAlias = Callable[[int], bool]
Perhaps: TypeAlias = Callable[[int], bool | None]


@dataclass(frozen=True)
class Limit:
    """A formula that is met where it is `exact`, and an upper bound elsewhere, if any."""

    formula: Cost
    exact: Where
    most: Cost | None = None


def at(exact: Where, formula: Cost, most: Cost | None = None) -> Limit:
    """The formula at some numbers of ranks; at the others no more than `most`."""
    return Limit(formula, exact, most)


def at_most(formula: Cost) -> Limit:
    """No more than the formula, at any number of ranks."""
    return Limit(formula, lambda p: False, formula)


def log(p: int, radix: int = 2) -> int:
    """Logarithm, rounded up."""
    digits = 0
    while radix**digits < p:
        digits += 1
    return digits


def always(p: int) -> bool:
    return True


def power(p: int) -> bool:
    return p & (p - 1) == 0


def power_of(radix: int) -> Where:
    return lambda p: radix ** log(p, radix) == p


def none(p: int) -> int:
    return 0


def one(p: int) -> int:
    """The whole message once, where there is anyone to send it to."""
    return int(p > 1)


def steps(p: int) -> int:
    return p - 1


def twice(cost: Cost) -> Cost:
    return lambda p: 2 * cost(p)


def share(p: int) -> Fraction:
    """All but one's own block."""
    return Fraction(p - 1, p)


def folded(p: int, phases: int = 1) -> int:
    """Rounds where ranks too many for a power of two give to a neighbour and get back."""
    return phases * (p.bit_length() - 1) + (0 if power(p) else 2)


def fold_share(p: int) -> Fraction:
    """Bytes of halving among a power of two of ranks, and of the fold before it."""
    members = 1 << (p.bit_length() - 1)
    return share(members) + (not power(p))


def fold_blocks(p: int) -> Fraction:
    """As `fold_share`, where a block belongs to each rank: members have one or two."""
    members = 1 << (p.bit_length() - 1)
    return share(p) if power(p) else 1 + Fraction(2 * (members - 1), p)


def hops(p: int, radix: int) -> int:
    """Children of the root of a k-nomial tree; one-port rounds of k-Bruck."""
    return sum(min(radix - 1, (p - 1) // radix**i) for i in range(log(p, radix)))


def digits(p: int, radix: int) -> Fraction:
    """Blocks that Bruck's alltoall sends: the digits of all distances that are not 0."""
    places = range(log(p, radix))
    return Fraction(sum(i // radix**k % radix > 0 for i in range(p) for k in places), p)


def grown(radix: int) -> Limit:
    """One-port rounds of `log` phases with radix - 1 messages each."""

    def most(p: int) -> int:
        return (radix - 1) * log(p, radix)

    return at(power_of(radix), most, most)


def members(p: int, radix: int) -> tuple[int, int]:
    """Phases of the members, a power of `radix`, and how many more one stands for."""
    phases = log(p, radix) - (not power_of(radix)(p))
    return phases, -(-p // radix**phases) - 1


def exchanged(radix: int) -> Limit:
    """One-port rounds of phases in which `radix` members exchange everything.

    Where some begin later, as they stand for others too, no more than twice as many.
    """

    def most(p: int) -> int:
        phases, more = members(p, radix)
        return 2 * ((radix - 1) * phases + more)

    return at(power_of(radix), lambda p: (radix - 1) * log(p, radix), most)


def absorbed(radix: int) -> Cost:
    """Messages that arrive at one of the members."""

    def formula(p: int) -> int:
        phases, more = members(p, radix)
        return (radix - 1) * phases + more

    return formula


def capped(aggregate: int) -> Limit:
    """Rounds if no message has more blocks: 1, 2, 4, ... of them, then as many as may be."""

    def formula(p: int) -> int:
        a = min(aggregate, 1 << log(p))
        return log(a) - 1 - (-p // a)

    return at(power, formula, lambda p: formula(1 << log(p)))


def dual_height(p: int) -> int:
    """The `h` of the dual-root paper: p + 2 = 2^h for two full trees."""
    return 1 + log((p + 1) // 2 + 1)


def nodes(g: int, formula: Callable[[int, int], int | Fraction]) -> Cost:
    """A formula of the ranks a node and the number of nodes, for `g` ranks a node."""
    return lambda p: formula(min(g, p), -(-p // g))


def full(g: int) -> Where:
    """Whether all nodes have the same number of ranks."""
    return lambda p: p % min(g, p) == 0


def unsure(p: int) -> None:
    """Not told by the paper."""


def unordered(to: int) -> Perhaps:
    """Not in rank order; up to so many ranks it may be so all the same."""
    return lambda p: True if p == 1 else None if p <= to else False


@dataclass(frozen=True)
class Row:
    """What must hold of one algorithm, with the values of its tunables.

    Each of `serves`, `ordered`, `identical` and `in_place` says for which p; None where
    it is not asked. `per_node` ranks share a node; 0: all do.
    """

    spec: str
    rounds: Cost | Limit
    volume: Cost | Limit
    reductions: Cost | Limit = none
    basis: str = "algorithms.md"
    ordered: Perhaps = always
    identical: Perhaps = always
    in_place: Perhaps = always
    serves: Where = always
    per_node: int = 0

    @property
    def name(self) -> str:
        """The name without tunables."""
        return self.spec.partition(":")[0]

    @property
    def id(self) -> str:
        return f"{self.spec}@{self.per_node}" if self.per_node else self.spec


def _pipelines(s: int) -> list[Row]:
    """What is cut into `s` segments."""
    neighbours = at(lambda p: p > 4, lambda p: 3, lambda p: 3 * one(p))
    sanders = "Sanders, Speck, Traeff 2009: 2 L + 2 k steps for k blocks a tree; volume derived"

    def circulant(p: int) -> int:
        return (s - 1 + log(p)) * one(p)

    def line(p: int) -> int:
        return (p - 2 + s) * one(p)

    def busiest(p: int) -> Fraction:
        return Fraction(circulant(p), s)

    return [
        Row(f"broadcast/chain:segments={s}", line, one),
        Row(f"reduce/chain:segments={s}", line, one, one),
        Row(
            f"allreduce/chain:segments={s}",
            at(lambda p: p > 2, twice(line), twice(line)),
            lambda p: min(p - 1, 2),
            one,
        ),
        Row(
            f"broadcast/circulant:segments={s}",
            circulant,
            busiest,
            basis="Traeff 2024, arXiv 2407.18004; the root sends a block each round",
        ),
        Row(
            f"reduce/circulant:segments={s}",
            circulant,
            busiest,
            busiest,
            "the broadcast backwards",
            ordered=unordered(4),
        ),
        Row(
            f"broadcast/double_tree:segments={s}",
            at_most(lambda p: (2 * log(p) + 2 * s) * one(p)),
            one,
            basis=sanders,
        ),
        Row(
            f"reduce/double_tree:segments={s}",
            at_most(lambda p: (2 * log(p) + 2 * s) * one(p)),
            one,
            one,
            basis=sanders,
            ordered=unordered(2),
        ),
        Row(
            f"allreduce/double_tree:segments={s}",
            at_most(lambda p: 4 * (log(p) + s) * one(p)),
            at(lambda p: p > 3, twice(one), twice(one)),
            one,
            basis=sanders,
        ),
        Row(
            f"allreduce/dual_root:segments={s}",
            at_most(lambda p: (4 * dual_height(p) - 3 + 3 * (s - 1)) * one(p)),
            neighbours,
            neighbours,
            "Traeff 2021, arXiv 2109.12626: 4h - 3 + 3(b - 1) steps; three neighbours a rank",
        ),
        Row(
            f"broadcast/split_binary:segments={s}",
            at_most(lambda p: (2 * s + 2 * log(p) + 1) * one(p)),
            at_most(lambda p: Fraction(3, 2) * one(p)),
            basis="derived: s segments a half, two children a rank, one exchange of halves",
        ),
    ]


def _radix(r: int) -> list[Row]:
    """What goes by the digits of a number, or by trees, of radix `r`."""
    tree = grown(r)
    return [
        Row(
            f"allreduce/recursive_multiplying:radix={r}",
            exchanged(r),
            absorbed(r),
            absorbed(r),
            "algorithms.md; derived where members stand for up to r neighbours",
        ),
        Row(f"allgather/bruck:radix={r}", lambda p: hops(p, r), share),
        Row(
            f"alltoall/bruck:radix={r}",
            lambda p: hops(p, r),
            lambda p: digits(p, r),
            in_place=power if r == 2 else unsure,
        ),
        Row(f"broadcast/knomial:radix={r}", tree, lambda p: hops(p, r), basis="derived"),
        Row(
            f"reduce/knomial:radix={r}",
            tree,
            lambda p: hops(p, r),
            lambda p: hops(p, r),
            basis="derived",
        ),
        Row(f"gather/knomial:radix={r}", tree, share, basis="derived"),
        Row(f"scatter/knomial:radix={r}", tree, share, basis="derived"),
        Row(f"barrier/dissemination:radix={r}", lambda p: hops(p, r), none, basis="derived"),
    ]


def _nodes(g: int) -> list[Row]:
    """What looks at the nodes, of `g` ranks each; costs are those of full nodes."""
    tree = nodes(g, lambda g, n: log(g) + log(n))
    there_and_back = nodes(g, lambda g, n: 2 * log(g) + folded(n))
    either = at_most(nodes(g, lambda g, n: g - 1 + n - 1))
    derived = "derived"

    def paired(p: int) -> bool | None:
        """Pairs exchange inside nodes and between them."""
        return power(min(g, p)) and power(-(-p // g)) if full(g)(p) else None

    def pipelined(s: int) -> Limit:
        return at_most(lambda p: (s + 1) * there_and_back(p))

    rows = [
        Row(
            "allreduce/hierarchical",
            nodes(g, lambda g, n: 2 * (g - 1) + 2 * (n - 1)),
            twice(share),
            share,
            ordered=lambda p: p <= g,
        ),
        Row("allreduce/leaders", there_and_back, tree, tree, derived),
        *[
            Row(
                f"allreduce/pipelined_leaders:segments={s}",
                pipelined(s),
                tree,
                tree,
                "derived: the leaders are busy throughout, but for the ends of the pipeline",
            )
            for s in (1, 8)
        ],
        Row("allgather/hierarchical", either, share, basis=derived),
        Row(
            "reduce_scatter/hierarchical",
            either,
            share,
            share,
            derived,
            ordered=lambda p: p <= g or None,
        ),
        Row(
            "alltoall/hierarchical",
            nodes(g, lambda g, n: g - 1 + n - 1),
            nodes(g, lambda g, n: share(g) + share(n)),
            in_place=paired,
        ),
        Row(
            "broadcast/hierarchical",
            at_most(nodes(g, lambda g, n: 2 * (g - 1) + log(n))),
            at_most(nodes(g, lambda g, n: 2 * share(g) + Fraction(log(n), g))),
            basis=derived,
        ),
        Row("broadcast/leaders", tree, tree, basis=derived),
        Row("reduce/leaders", tree, tree, tree, derived),
        Row("barrier/leaders", nodes(g, lambda g, n: 2 * log(g) + log(n)), none, basis=derived),
        Row("allreduce/node_ring", twice(steps), twice(share), share, ordered=unordered(1)),
        Row("allgather/node_ring", steps, share),
        Row("reduce_scatter/node_ring", steps, share, share, ordered=unordered(1)),
    ]
    return [replace(row, per_node=g) for row in rows]


def _grids(columns: int) -> Row:
    """A grid of rows of so many ranks."""
    return Row(
        f"alltoall/grid:columns={columns}",
        at(full(columns), nodes(columns, lambda b, a: a - 1 + b - 1)),
        at(full(columns), nodes(columns, lambda b, a: share(a) + share(b))),
        in_place=power,
    )


def even(p: int) -> bool:
    return p % 2 == 0 or p == 1


def _swing() -> list[Row]:
    """For an even number of ranks; of an odd one, the last trades its block with each other."""

    def phases(number: int) -> Limit:
        return at(even, lambda p: number * log(p), lambda p: number * (log(p) + p - 1))

    basis = "De Sensi et al. 2024, arXiv 2401.09356"
    return [
        Row("allreduce/swing", phases(2), twice(share), share, basis, ordered=unordered(7)),
        Row("allgather/swing", phases(1), share, basis=basis),
        Row("reduce_scatter/swing", phases(1), share, share, basis, ordered=unordered(7)),
        Row(
            "allreduce/swing_latency",
            folded,
            log,
            log,
            f"{basis}; nearest peers first, ranks would add in different orders from 8 on",
            ordered=unordered(7),
        ),
    ]


def _bine() -> list[Row]:
    """Butterflies for an even number of ranks; of an odd one, a rank acts for two."""
    basis = "De Sensi et al. 2025, arXiv 2508.17311; derived where a rank acts for two"

    def phases(number: int) -> Cost:
        return lambda p: number * log(p) if even(p) else number * log(p - 1) + 2

    def blocks(p: int) -> Fraction:
        """The one that acts for two has one block more in each round, and sends all back."""
        return share(p) if even(p) else 2 * share(p) + Fraction(log(p - 1) - 1, p)

    tree = at(even, log, log)
    gathered, whole = at(even, share, blocks), at(even, share, lambda p: 1 + share(p))
    return [
        Row(
            "allreduce/bine",
            phases(2),
            at(even, twice(share), lambda p: 1 + 2 * share(p)),
            whole,
            basis,
            ordered=unordered(7),
        ),
        Row("allgather/bine", phases(1), gathered, basis=basis),
        Row("reduce_scatter/bine", phases(1), gathered, gathered, basis, ordered=unordered(7)),
        Row("broadcast/bine", log, tree, basis=basis),
        Row("reduce/bine", log, tree, tree, basis, ordered=unordered(4)),
        Row("gather/bine", log, share, basis=basis),
        Row("scatter/bine", log, share, basis=basis),
    ]


TABLE: tuple[Row, ...] = (
    Row("allreduce/ring", twice(steps), twice(share), share, ordered=unordered(1)),
    Row(
        "allreduce/bidirectional_ring",
        lambda p: 4 * (p - 1),
        twice(share),
        share,
        "two rings on one port",
        ordered=unordered(1),
    ),
    Row("allreduce/recursive_doubling", folded, log, log),
    Row(
        "allreduce/recursive_halving_doubling",
        lambda p: folded(p, 2),
        lambda p: fold_share(p) + share(1 << (p.bit_length() - 1)),
        fold_share,
    ),
    Row(
        "allreduce/circulant",
        twice(log),
        twice(share),
        share,
        "Traeff 2024, arXiv 2410.14234",
        ordered=unordered(3),
    ),
    *_swing(),
    *_bine(),
    Row("allreduce/one_shot", steps, steps, steps),
    Row("allreduce/two_shot", twice(steps), twice(share), share),
    Row(
        "allreduce/elimination",
        at(power, twice(log), lambda p: 2 * log(p) + 2),
        at(power, twice(share), lambda p: 2 * fold_share(p)),
        at(power, share, fold_share),
        "Rabenseifner, Traeff 2004: no dearer than folding",
    ),
    Row("allgather/ring", steps, share),
    Row("allgather/bidirectional_ring", twice(steps), share, basis="two rings on one port"),
    Row("allgather/recursive_doubling", log, share, serves=power),
    Row("allgather/neighbor_exchange", lambda p: p // 2, share, serves=even),
    Row("allgather/sparbit", log, share),
    Row("allgather/circulant", log, share),
    Row("allgather/direct", steps, share),
    Row("reduce_scatter/ring", steps, share, share, ordered=unordered(1)),
    Row(
        "reduce_scatter/bidirectional_ring",
        twice(steps),
        share,
        share,
        "two rings on one port",
        ordered=unordered(1),
    ),
    Row("reduce_scatter/pairwise", steps, share, share, ordered=unordered(2)),
    Row("reduce_scatter/direct", steps, share, share),
    Row(
        "reduce_scatter/recursive_halving",
        folded,
        at(power, share, fold_blocks),
        at(power, share, fold_blocks),
    ),
    Row("reduce_scatter/circulant", log, share, share, ordered=unordered(3)),
    *[
        row
        for suffix, rounds in [
            ("", log),
            *[(f":aggregate={a}", capped(a)) for a in (1, 2, 4, 64)],
        ]
        for row in (
            Row(
                f"allgather/pat{suffix}",
                rounds,
                share,
                basis="Jeaugey 2025, arXiv 2506.20252; rounds with a cap derived",
            ),
            Row(
                f"reduce_scatter/pat{suffix}",
                rounds,
                share,
                share,
                "the allgather backwards",
                ordered=unordered(4),
            ),
        )
    ],
    Row("alltoall/spread_out", steps, share),
    Row("alltoall/linear", steps, share, in_place=lambda p: p - 1 <= 8),
    Row("alltoall/linear:window=2", steps, share, in_place=lambda p: p - 1 <= 2),
    Row("alltoall/pairwise", steps, share, in_place=power),
    *map(_grids, (2, 3, 4)),
    Row("broadcast/binomial", log, log),
    Row("broadcast/scatter_allgather", lambda p: log(p) + p - 1, twice(share)),
    Row("broadcast/direct", steps, steps),
    Row("reduce/binomial", log, log, log),
    Row(
        "reduce/reduce_scatter_gather",
        at(power, twice(log), lambda p: folded(p) + log(p)),
        at(power, twice(share), lambda p: fold_blocks(p) + share(p)),
        at(power, share, fold_blocks),
        "Rabenseifner 2004; the fold as in reduce_scatter/recursive_halving",
    ),
    Row("reduce/direct", steps, steps, steps),
    Row("gather/binomial", log, share),
    Row("gather/direct", steps, share),
    Row("scatter/binomial", log, share),
    Row("scatter/direct", steps, share),
    Row("scan/direct", steps, steps, steps),
    Row("scan/chain", steps, one, one),
    Row(
        "scan/recursive_doubling",
        log,
        at(power, log, log),
        at(power, lambda p: max(2 * log(p) - 2, log(p)), lambda p: 2 * log(p)),
    ),
    Row("exscan/direct", steps, steps, lambda p: max(p - 2, 0)),
    Row("exscan/chain", steps, one, lambda p: int(p > 2)),
    Row(
        "exscan/recursive_doubling",
        log,
        at(power, log, log),
        at(power, lambda p: max(2 * log(p) - 3, 0), lambda p: 2 * log(p)),
    ),
    Row("barrier/direct", steps, none),
    *[row for s in (1, 4, 7) for row in _pipelines(s)],
    *[row for r in (2, 3, 4) for row in _radix(r)],
    *[row for g in (2, 4) for row in _nodes(g)],
)


def _powers(p: int) -> set[int]:
    return {1 << k for k in range(log(p))}


def _swinging(p: int) -> set[int]:
    """rho(s) = (1 - (-2)^(s+1)) / 3, which negabinary butterflies and trees share."""
    return {(1 - (-2) ** (s + 1)) // 3 for s in range(log(p))}


def _halving(p: int) -> set[int]:
    """The skips of circulant graphs: p halved and rounded up until 1 is left."""
    skips = {p}
    while (skip := min(skips)) > 1:
        skips.add(-(-skip // 2))
    return skips - {p}


def _neighbours(p: int) -> set[int]:
    return {1}


DISTANCES: dict[str, tuple[Callable[[int], set[int]], Where]] = {
    "allreduce/ring": (_neighbours, always),
    "allreduce/recursive_doubling": (_powers, power),
    "allreduce/recursive_halving_doubling": (_powers, power),
    "allreduce/swing_latency": (_swinging, power),
    "allreduce/swing": (_swinging, power),
    "allreduce/bine": (_swinging, power),
    "allreduce/circulant": (_halving, always),
    "allgather/neighbor_exchange": (_neighbours, even),
    "allgather/bruck": (_powers, always),
    "allgather/sparbit": (_powers, always),
    "allgather/pat": (_powers, always),
    "allgather/circulant": (_halving, always),
    "allgather/bine": (_swinging, power),
    "allgather/swing": (_swinging, power),
    "reduce_scatter/recursive_halving": (_powers, power),
    "reduce_scatter/pat": (_powers, always),
    "reduce_scatter/circulant": (_halving, always),
    "reduce_scatter/bine": (_swinging, power),
    "broadcast/binomial": (_powers, always),
    "broadcast/bine": (_swinging, power),
    "broadcast/circulant": (_halving, always),
    "reduce/bine": (_swinging, power),
    "reduce/circulant": (_halving, always),
    "gather/bine": (_swinging, power),
    "scatter/bine": (_swinging, power),
}
"""How far messages travel, up or down: the edges of the paper's graph, and at which p."""
