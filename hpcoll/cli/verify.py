"""``hpcoll verify``: prove algorithms for many numbers of ranks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from hpcoll.cli import output, values

if TYPE_CHECKING:
    from hpcoll.schedule.algorithm import Algorithm
    from hpcoll.schedule.verify import Proof


@click.command(
    short_help="Prove algorithms for many numbers of ranks.",
    epilog="Example: hpcoll verify allreduce allgather/ring --ranks 1-32,48; "
    "of a file: hpcoll verify --load mine.py --ranks 1-64",
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--ranks",
    type=values.RANKS,
    default="1-32",
    show_default=True,
    metavar="LIST",
    help="Numbers of ranks, such as 1-32,48,64.",
)
@click.option(
    "--jobs",
    type=values.whole(1, 1024),
    metavar="N",
    help="Number of processes; as many as there are cores by default.",
)
@values.ranks_per_node_option
@values.load_option
@values.json_option
def command(
    names: tuple[str, ...],
    ranks: tuple[int, ...],
    jobs: int | None,
    ranks_per_node: int | None,
    load: tuple[str, ...],
    as_json: bool,
) -> int:
    """Prove that algorithms are right, by running all ranks on symbols.

    NAME is a collective or collective/algorithm, with tunables as in
    alltoall/bruck:radix=2,3,4, which are three. Without a name, all algorithms are
    proved, or those of --load. Every root is tried up to 8 ranks, three of them beyond;
    each in place and not, with equal and unequal chunks, up to 256 ranks with irregular
    owners of chunks; algorithms that look at the nodes, for several placements of ranks.

    Exit status 1: a proof failed, or nothing could be proved.
    """
    from hpcoll.cli import pool

    values.checked_settings()
    chosen = _choose(names, load)
    start = time.perf_counter()
    tasks = [(a.spec, size) for a in chosen for size in ranks]
    with output.progress(len(tasks), "proving") as advance:
        proofs = pool.prove_all(tasks, load, jobs or pool.default_jobs(), advance, ranks_per_node)
    seconds = time.perf_counter() - start
    if as_json:
        output.print_json(_as_json(proofs, seconds))
    else:
        _print(proofs, {a.spec for a in chosen if a.native}, seconds)
    right = any(p.proved for p in proofs) and not any(p.fault for p in proofs)
    return 0 if right else 1


def _choose(names: tuple[str, ...], load: tuple[str, ...]) -> list[Algorithm]:
    from hpcoll.schedule import registry

    loaded = values.load_files(load)
    if not names:
        return loaded or registry.algorithms()
    chosen: dict[str, Algorithm] = {}
    for name in names:
        found = registry.find_all(name) if "/" in name else registry.algorithms(name)
        chosen.update({a.spec: a for a in found})
    return list(chosen.values())


def _print(proofs: list[Proof], native: set[str], seconds: float) -> None:
    failures = _by_algorithm([p for p in proofs if p.fault])
    for spec, failed in failures.items():
        first = failed[0]
        click.echo(f"FAILED {first.fault}")
        if len(failed) > 1:
            others = values.format_ranks([p.ranks for p in failed[1:]])
            click.echo(f"       {spec} fails at {others} ranks too")
    proved = sum(p.proved for p in proofs)
    skipped = [p for p in proofs if p.skipped is not None]
    reasons = _skip_reasons(skipped, native)
    click.echo(
        f"proved {proved}, skipped {len(skipped)}"
        + (f" ({'; '.join(reasons)})" if reasons else "")
        + f", failed {sum(map(len, failures.values()))} in {seconds:.1f} s"
    )
    if not proved and not failures:
        click.echo("nothing was proved", err=True)


def _by_algorithm(proofs: list[Proof]) -> dict[str, list[Proof]]:
    groups: dict[str, list[Proof]] = {}
    for p in sorted(proofs, key=lambda p: p.ranks):
        groups.setdefault(p.algorithm, []).append(p)
    return groups


def _skip_reasons(skipped: list[Proof], native: set[str]) -> list[str]:
    """One entry for each algorithm and reason, all native ones together."""
    texts: list[str] = []
    for spec, group in _by_algorithm([p for p in skipped if p.algorithm not in native]).items():
        reasons: dict[str, int] = {}
        for p in group:
            reasons[str(p.skipped)] = reasons.get(str(p.skipped), 0) + 1
        if len(reasons) > 2:
            reasons = {f"{next(iter(reasons))}, and alike": len(group)}
        texts += [f"{spec}: {reason}: {_sizes(n)}" for reason, n in reasons.items()]
    own = [p for p in skipped if p.algorithm in native]
    if own:
        count = len({p.algorithm for p in own})
        texts.append(f"{own[0].skipped}: {count} x {_sizes(len(own) // count)}")
    return texts


def _sizes(n: int) -> str:
    return f"{n} size{'s' if n != 1 else ''}"


def _as_json(proofs: list[Proof], seconds: float) -> dict[str, Any]:
    return {
        "proved": sum(p.proved for p in proofs),
        "skipped": sum(p.skipped is not None for p in proofs),
        "failed": sum(p.fault is not None for p in proofs),
        "seconds": round(seconds, 3),
        "results": [
            {
                "algorithm": p.algorithm,
                "ranks": p.ranks,
                "status": "proved" if p.proved else "failed" if p.fault else "skipped",
                "skipped": p.skipped,
                "fault": p.fault,
                "kind": p.kind,
                "rank_order": p.rank_order if p.proved else None,
                "bit_identical": p.bit_identical if p.proved else None,
                "in_place": p.in_place if p.proved else None,
            }
            for p in proofs
        ],
    }
