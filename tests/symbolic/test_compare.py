"""``hpcoll compare``, what it draws, and specs with several values of a tunable."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hpcoll.cli import cli
from hpcoll.draw.frontier import Point, draw_frontier, frontier
from hpcoll.errors import ConfigError, RegistryError
from hpcoll.schedule.registry import algorithms, find, find_all


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["compare", *arguments])


def test_all_algorithms_are_compared() -> None:
    result = run("allreduce", "--ranks", "8", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    names = {e["algorithm"] for e in found["algorithms"]}
    assert names == {a.name for a in algorithms("allreduce") if not a.native}
    best = {e["algorithm"] for e in found["algorithms"] if e["best"]}
    assert {"recursive_doubling", "recursive_halving_doubling"} <= best
    assert "ring" not in best


def test_the_table_starts_with_the_best_and_names_the_bounds() -> None:
    lines = run("allgather", "--ranks", "6").stdout.splitlines()
    assert "rounds (least 3)" in lines[0]
    assert lines[1].endswith("best")
    assert lines[-1].startswith("recursive_doubling: not at 6 ranks: needs a power of two")


def test_nodes_change_what_looks_at_them() -> None:
    counts = [
        json.loads(run("allreduce", "--algorithm", "leaders", "--json", *nodes).stdout)
        for nodes in ((), ("--ranks-per-node", "2"))
    ]
    assert counts[0] != counts[1]


def test_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    assert run("allreduce", "--ranks", "4", "--plot", str(path)).exit_code == 0
    assert path.stat().st_size > 5000
    with pytest.raises(ConfigError, match="must end in"):
        draw_frontier("x", [Point("a", 1, 1, 0)], (1, 1), tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("alreduce",), "unknown collective"),
        (("allreduce", "--algorithm", "rng"), "did you mean allreduce/ring"),
        (("allreduce", "--algorithm", "native"), "native has none"),
        (("allreduce", "--plot", "/nowhere/a.png"), "there is no folder"),
        (("allreduce", "--plot", "a.gif"), "must end in"),
        (("barrier", "--plot", "a.png"), "moves nothing"),
        (("allreduce", "--ranks", "0"), "from 1 to"),
        (("allreduce", "--ranks-per-node", "0"), "from 1 to"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_frontier() -> None:
    points = [Point("a", 2, 4, 0), Point("b", 4, 2, 0), Point("c", 4, 3, 0), Point("d", 2, 4, 0)]
    assert frontier(points) == {"a", "b", "d"}


def test_several_values_of_a_tunable() -> None:
    assert [a.asked for a in find_all("alltoall/bruck:radix=2,3,4")] == [
        f"alltoall/bruck:radix={r}" for r in (2, 3, 4)
    ]
    assert [a.asked for a in find_all("ring", "allreduce")] == ["allreduce/ring"]
    assert len(find_all("broadcast/chain:segments=1,4,16")) == 3
    with pytest.raises(RegistryError, match="several values"):
        find("alltoall/bruck:radix=2,3")
    for wrong in ("alltoall/bruck:2", "alltoall/bruck:radix=x", "alltoall/bruck:radix=2,x=3,4.5"):
        with pytest.raises(RegistryError, match="write tunables as"):
            find_all(wrong)
    with pytest.raises(RegistryError, match="has no tunable 'x'"):
        find_all("alltoall/bruck:x=2,3")


def test_a_sweep_is_proved(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli, ["verify", "alltoall/bruck:radix=2,3", "--ranks", "1-5", "--json"]
    )
    assert json.loads(result.stdout)["proved"] == 10


def test_markdown() -> None:
    result = CliRunner().invoke(cli, ["list", "allreduce", "--markdown"])
    lines = result.stdout.splitlines()
    assert len(lines) == 1 + len(algorithms("allreduce"))
    assert all(line.count("|") == lines[0].count("|") for line in lines)
    assert "](https://doi.org/" in result.stdout
