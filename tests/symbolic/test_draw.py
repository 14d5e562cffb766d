"""The pictures of schedules: which messages they show, and that they are drawn."""

import builtins
import json
import struct
import sys
from itertools import pairwise

import pytest
from click.testing import CliRunner

from hpcoll.bench import plot
from hpcoll.bench.curves import lines_of
from hpcoll.bench.results import Info, Results, Row
from hpcoll.cli import cli, steps
from hpcoll.draw import messages, sheet, spacetime, style
from hpcoll.errors import ConfigError
from hpcoll.schedule import registry
from hpcoll.schedule.operations import copy, tmp
from hpcoll.schedule.topology import Topology
from hpcoll.schedule.verify import prove

DEADLOCK = """
from hpcoll.schedule import algorithm, recv, send

@algorithm("broadcast")
def test_draw_stuck(p):
    \"\"\"All wait for each other.\"\"\"
    yield recv((p.rank + 1) % p.size, 0)

@algorithm("allreduce")
def test_draw_lazy(p):
    \"\"\"Hands the input on.\"\"\"
    if p.rank == 0:
        yield send(1, 0)
    elif p.rank == 1:
        yield recv(0, 0)
"""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """A file whose algorithms are wrong; loaded once, as they stay registered."""
    file = tmp_path_factory.mktemp("draw") / "wrong.py"
    file.write_text(DEADLOCK)
    return file


def show(*args, status=0):
    done = CliRunner().invoke(cli, ["show", *map(str, args)])
    assert done.exit_code == status, done.output
    assert "Traceback" not in done.output
    return done


def run_of(name, size, *, root=0, topology=None):
    algorithm = registry.find(name)
    return messages.run(algorithm, algorithm.problem(0, size, root=root, topology=topology))


def png_size(path):
    """Width and height of a picture, in pixels."""
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return struct.unpack(">II", head[16:])


def test_the_messages_of_a_ring():
    run = run_of("allreduce/ring", 4)
    assert run.rounds == 6
    assert len(run.arrows) == 24
    assert all(a.target == (a.source + 1) % 4 and len(a.chunks) == 1 for a in run.arrows)
    assert all(a.folded == (a.round < 3) for a in run.arrows)
    assert sorted(run.folds) == [(r, t) for r in range(4) for t in (1, 2, 3)]
    first = messages.Arrow(source=0, target=1, round=0, chunks=(0,), folded=True)
    assert run.arrows[0] == first
    assert messages.phases(run, (0,) * 4) == [(0, 3, "folded"), (3, 6, "stored")]


def test_the_messages_of_a_tree_with_another_root():
    run = run_of("broadcast/binomial", 8, root=3)
    assert [(a.source, a.target, a.round) for a in run.arrows] == [
        (3, 7, 0), (3, 5, 1), (7, 1, 1), (1, 2, 2), (3, 4, 2), (5, 6, 2), (7, 0, 2),
    ]  # fmt: skip
    assert run.folds == ()


def test_a_fold_of_several_messages_is_marked_once_when_the_last_is_there():
    run = run_of("allreduce/one_shot", 4)
    assert len(run.arrows) == 12
    assert all(a.folded for a in run.arrows)
    assert sorted(run.folds) == [(r, 3) for r in range(4)]


def test_lanes_that_both_come_from_one_rank_are_told_apart_by_their_chunks():
    run = run_of("allreduce/bidirectional_ring", 2)
    assert {a.chunks for a in run.arrows} == {(0,), (1,), (2,), (3,)}
    assert sum(a.folded for a in run.arrows) == len(run.arrows) // 2


@pytest.mark.parametrize("name", ["allreduce/leaders", "alltoall/hierarchical", "barrier/leaders"])
def test_phases_tell_nodes(name):
    topology = Topology.blocks(8, 4)
    found = messages.phases(run_of(name, 8, topology=topology), topology.node_of)
    assert found[0][0] == 0
    assert all(a[1] == b[0] for a, b in pairwise(found))
    words = [text.split("\n")[1] for _, _, text in found]
    assert "between nodes" in words
    assert words[0] == "in nodes"


@pytest.mark.parametrize("collective", ["reduce_scatter", "alltoall", "scan", "gather", "barrier"])
def test_every_message_is_shown_and_at_most_one_out_and_in_a_rank_and_round(collective):
    for algorithm in registry.algorithms(collective):
        proof = None if algorithm.native else prove(algorithm, 6)
        if proof is None or not proof.proved:
            continue
        run = messages.run(algorithm, algorithm.problem(0, 6))
        assert (run.rounds, len(run.arrows)) == (proof.counts.rounds, proof.counts.total)
        for end in ("source", "target"):
            assert len({(getattr(a, end), a.round) for a in run.arrows}) == len(run.arrows)


@pytest.mark.parametrize(
    "args",
    [
        "allreduce/ring --ranks 2",
        "allreduce/ring --ranks 1",
        "allreduce/recursive_doubling --ranks 64",
        "allreduce/recursive_halving_doubling --ranks 16",
        "allreduce/pipelined_leaders --ranks 8 --ranks-per-node 3",
        "allgather/bruck --ranks 7",
        "alltoall/bruck --ranks 13",
        "alltoall/pairwise --ranks 4",
        "barrier/dissemination --ranks 6",
        "reduce/binomial --ranks 40 --root 37",
        "broadcast/circulant --ranks 8 --root 7",
        "exscan/direct --ranks 5",
    ],
)
def test_show_draws(tmp_path, args):
    target = tmp_path / "a.png"
    done = show(*args.split(), "--plot", target)
    assert f"wrote {target}" in done.stderr
    width, height = png_size(target)
    assert 1000 < width < 6000
    assert 200 < height < 2000


def test_what_a_picture_says(tmp_path):
    target = tmp_path / "a.svg"
    args = ("--ranks", 6, "--root", 4, "--ranks-per-node", 4, "--plot", target)
    show("reduce/binomial", *args)
    # Text is drawn as shapes; matplotlib notes it in comments.
    text = target.read_text()
    for words in (
        "reduce/binomial, 6 ranks, root 4, 2 nodes", "messages, busiest rank:", "rank 4 (root)",
        "node 0", "node 1", "folded", "between nodes", "message of n bytes", "fold at the receiver",
        "round (a rank sends one message and receives one in each)",
    ):  # fmt: skip
        assert f"{words}" in text, words
    show("allgather/ring", "--ranks", 4, "--plot", target)
    text = target.read_text()
    assert "a strand is a chunk of n/4 bytes" in text
    assert "chunk 0" in text
    assert "node 0" not in text


def test_show_draws_in_a_json_run_and_into_a_pipe_too(tmp_path):
    done = show("allgather/ring", "--ranks", 4, "--plot", tmp_path / "a.pdf", "--json")
    assert json.loads(done.stdout)["nodes"] is None
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_nodes_are_told():
    args = ("allreduce/leaders", "--ranks", 6)
    done = show(*args, "--ranks-per-node", 4)
    assert "ranks of node 0: 0-3 | node 1: 4-5\n" in done.stdout
    assert "rank 4 (node 1)" in done.stdout
    assert "nodes: one" in show(*args).stdout
    assert show(*args, "--ranks-per-node", 6).stdout.count("node 0") == 1
    content = json.loads(show(*args, "--ranks-per-node", 4, "--json").stdout)
    assert content["nodes"] == [[0, 1, 2, 3], [4, 5]]
    assert content["steps"]["4"] != json.loads(show(*args, "--json").stdout)["steps"]["4"]
    flat = show("allreduce/ring", "--ranks", 6, "--ranks-per-node", 3, "--steps", 3).stdout
    assert "the algorithm doesn't look at them" in flat
    assert "rank 3 of 6 (node 1)" in flat
    rooted = show("broadcast/binomial", "--root", 1, "--ranks-per-node", 4, "--steps", 5).stdout
    assert "rank 5 of 8 (root 1, node 1)" in rooted
    many = show("barrier/direct", "--ranks", 40, "--ranks-per-node", 1).stdout
    assert "and 24 more nodes" in many


def test_slots_of_parts_in_words():
    assert (
        steps.operation_text(copy(tmp(2, (8, ("back", 1))), 2)) == "copy tmp(2,(8,(back,1))) <- 2"
    )


def test_wrong_schedules(tmp_path, wrong):
    target = tmp_path / "a.svg"
    args = ("--ranks", 3, "--load", wrong, "--plot", target)
    done = show("broadcast/test_draw_stuck", *args, status=1)
    assert "PROOF FAILED" in done.stdout
    assert "no picture: " in done.stderr
    assert not target.exists()
    show("allreduce/test_draw_lazy", *args, status=1)
    assert "the proof failed" in target.read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("allreduce/ring --plot a.gif", "must end in .png"),
        ("allreduce/ring --plot no/such/a.png", "no folder"),
        ("allreduce/ring --ranks 65 --plot a.png", "room for 64 ranks, not 65"),
        ("allreduce/native --plot a.png", "--plot: allreduce/native has no schedule"),
        ("allreduce/ring --ranks-per-node 0", "from 1 to 4096"),
    ],
)
def test_show_refuses(args, words):
    done = show(*args.split(), status=2)
    assert words in done.stderr
    assert done.stdout == ""


def test_too_many_rounds(tmp_path):
    run = messages.Run((), (), spacetime.MAX_ROUNDS + 1)
    look = sheet.Look("", 2, None, (0, 0), 1, "n bytes", False, steps.chunk_list)
    with pytest.raises(ConfigError, match="room for 1000 rounds, not 1001"):
        spacetime.draw(run, look, tmp_path / "a.png")


def test_without_matplotlib(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **extra):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *args, **extra)

    for name in [n for n in sys.modules if n.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(builtins, "__import__", without)
    message = "hpcoll: error: plots need matplotlib: pip install 'hpcoll[plot]'\n"
    assert show("allreduce/ring", "--plot", "a.png", status=2).stderr == message


def test_colours_and_markers_repeat_late():
    n = len(style.COLOURS)
    assert len({(style.colour(i), style.marker(i)) for i in range(n * len(style.MARKERS))}) == 49
    assert len({sheet.colour_of(c, look_of(8)) for c in range(8)}) == 8
    assert len({sheet.colour_of((0, c), look_of(64)) for c in range(64)}) == 64


def look_of(chunks):
    return sheet.Look("", 2, None, (0, 0), chunks, "", False, steps.chunk_list)


def bench(count):
    """Results of so many algorithms; the first is the fastest up to 4K, the last beyond."""
    rows = tuple(
        Row("allreduce", size, "float32", "sum", -1, False, f"allreduce/a{i}", "mpi", 9,
            t, t, t, 1.0, 1.0, 0)
        for i in range(count)
        for size in (64, 4096, 2**20)
        for t in [size / 1000 + 1 + (i if size < 2**20 else count - i)]
    )  # fmt: skip
    return Results(Info("0.1", "MPI", 4, 1, "cpu"), rows)


def test_a_bench_of_many_algorithms_has_colours_for_the_fastest(tmp_path):
    for count, coloured in ((8, [f"a{i}" for i in range(8)]), (12, ["a0", "a11"])):
        assert plot._in_colour(lines_of([("x", bench(count))], "allreduce")) == coloured
    plot.draw([("x", bench(12))], tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    # In the legend or beside its line: each name once, and in the names of crossovers.
    assert all(f"<!-- a{i} -->" in text for i in range(12))
    assert text.count("<!-- a5 -->") == 1
