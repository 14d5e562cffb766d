"""Results: the formulas, the files, the table, the curves and the picture."""

import csv
import io
import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcoll.bench import curves, plot, table
from hpcoll.bench.options import sizes_between
from hpcoll.bench.results import (
    Info,
    Results,
    Row,
    bandwidths,
    busbw_factor,
    load_json,
    save_csv,
    save_json,
)
from hpcoll.errors import ConfigError

INFO = Info("0.1.0", "MPI 5.0", 4, 1, "some processor", {"timeout_s": 1800}, {"MPIR_X": "1"}, 0.5)


def row(nbytes=1024, time_us=10.0, algorithm="allreduce/ring", collective="allreduce", **other):
    alg, bus = bandwidths(collective, nbytes, time_us, 4)
    known = {"op": "sum", "root": -1, "in_place": False, "transport": "mpi", "iterations": 100}
    return Row(
        collective=collective,
        bytes=nbytes,
        dtype="float32",
        algorithm=algorithm,
        time_us=time_us,
        min_us=0.9 * time_us,
        p95_us=1.2 * time_us,
        algbw_GBps=alg,
        busbw_GBps=bus,
        wrong=0,
        **{**known, **other},
    )


def racing():
    """A flat line and a steep one, which cross at 1000 bytes."""
    rows = []
    for nbytes in (16, 256, 4096, 65536):
        rows.append(row(nbytes, 10.0 + nbytes / 100, "allreduce/low", versus="mpi", versus_us=90.0))
        rows.append(row(nbytes, 15.0 + nbytes / 200, "allreduce/high"))
    return Results(INFO, tuple(rows))


@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
def test_bandwidth_factors(ranks):
    share = (ranks - 1) / ranks
    for name in ("allgather", "reduce_scatter", "alltoall", "gather", "scatter", "allgatherv"):
        assert busbw_factor(name, ranks) == pytest.approx(share)
    assert busbw_factor("allreduce", ranks) == pytest.approx(2 * share)
    for name in ("broadcast", "reduce", "scan", "exscan"):
        assert busbw_factor(name, ranks) == (ranks > 1)
    # 1e9 bytes in a second.
    assert bandwidths("allreduce", 10**9, 1e6, ranks) == pytest.approx((1.0, 2 * share))


def test_no_division_error():
    assert bandwidths("allreduce", 0, 0.0, 1) == (0.0, 0.0)
    assert busbw_factor("barrier", 8) == 0


def test_json_is_read_as_written(tmp_path):
    results = racing()
    save_json(results, tmp_path / "a.json")
    assert load_json(tmp_path / "a.json") == results
    content = json.loads((tmp_path / "a.json").read_text())
    assert set(content) >= {"hpcoll", "mpi", "ranks", "nodes", "cpu", "settings", "rows"}
    assert {"algbw_GBps", "busbw_GBps", "compiled_ratio", "call_us"} <= set(content["rows"][0])


def pair(**other):
    return row(memory="private", **other), row(time_us=4.0, memory="shared", **other)


def test_memory_is_in_the_files(tmp_path):
    results = Results(INFO, pair())
    save_json(results, tmp_path / "a.json")
    assert load_json(tmp_path / "a.json") == results
    save_csv(results, tmp_path / "a.csv")
    with open(tmp_path / "a.csv", newline="") as file:
        assert [r["memory"] for r in csv.DictReader(file)] == ["private", "shared"]


def test_json_with_further_keys_and_without_optional_ones(tmp_path):
    content = {
        "hpcoll": "1", "mpi": "m", "ranks": 4, "nodes": 1, "cpu": "c", "settings": {},
        "native_settings": {}, "later": [1], "rows": [
            {"later": 1, "wrong": 0, "busbw_GBps": 1, "algbw_GBps": 1, "p95_us": 3, "min_us": 1,
             "time_us": 2, "iterations": 5, "transport": "mpi", "algorithm": "a", "in_place": True,
             "root": -1, "op": "sum", "dtype": "int8", "bytes": 8, "collective": "allreduce"}
        ],
    }  # fmt: skip
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    found = load_json(path).rows[0]
    assert found.time_us == 2.0
    assert found.versus is None
    assert found.memory == "private"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.pop("rows"), "no list 'rows'"),
        (lambda c: c.pop("mpi"), "lacks 'mpi'"),
        (lambda c: c.update(ranks="4"), 'ranks is "4", must be a whole number'),
        (lambda c: c.update(ranks=0), "ranks is 0"),
        (lambda c: c.update(ranks=True), "ranks is true"),
        (lambda c: c.update(rows=[1]), "row 0: is 1"),
        (lambda c: c["rows"][1].pop("time_us"), "row 1: lacks 'time_us'"),
        (lambda c: c["rows"][2].update(time_us="N/A"), 'row 2: time_us is "N/A", must be a number'),
        (lambda c: c["rows"][0].update(time_us=float("nan")), "NaN"),
        (lambda c: c["rows"][0].update(time_us=10**400), "must be a number"),
        (lambda c: c["rows"][0].update(bytes=1.5), "bytes is 1.5, must be a whole number"),
        (lambda c: c["rows"][0].update(bytes=-8), "negative"),
        (lambda c: c["rows"][0].update(in_place=0), "in_place is 0, must be true or false"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(tmp_path, change, words):
    path = tmp_path / "a.json"
    save_json(racing(), path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError) as caught:
        load_json(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"[" * 100_000, b"{'a': 1}", b"1e5"])
def test_a_file_of_something_else(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.json"):
        load_json(path)


def test_a_file_that_is_cut_off(tmp_path):
    path = tmp_path / "a.json"
    save_json(racing(), path)
    path.write_text(path.read_text()[:700])
    with pytest.raises(ConfigError, match="is not JSON: line"):
        load_json(path)
    with pytest.raises(ConfigError, match="can't be read"):
        load_json(tmp_path / "none.json")


def test_csv(tmp_path):
    save_csv(racing(), tmp_path / "a.csv")
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert rows[0]["ranks"] == "4"
    assert float(rows[0]["time_us"]) == pytest.approx(10.16)
    assert rows[1]["versus_us"] == ""


def printed(*calls):
    file = io.StringIO()
    for call in calls:
        call(file)
    return file.getvalue().splitlines()


def test_table_columns_line_up():
    compared = row(versus="mpi", versus_us=20.0, ratio=2.0, compiled_ratio=1.5)
    lines = printed(
        lambda f: table.print_header(INFO, versus="mpi", notes=("5 warm-up calls",), file=f),
        lambda f: table.print_row(compared, versus="mpi", file=f),
        lambda f: table.print_row(row(2**26, 123456.7), versus="mpi", file=f),
        lambda f: table.print_footer([compared], 1.0, file=f),
    )
    heading = next(line for line in lines if "algbw" in line)
    units = lines[lines.index(heading) + 1]
    first, second = (line for line in lines if not line.startswith("#"))
    names = (
        "size count type redop root time algbw busbw #wrong min p95 algorithm mpi ratio compiled"
    )
    assert heading.removeprefix("#").split() == names.split()
    assert units.split().count("(us)") == 4
    cells = "1024 256 float32 sum -1 10.00 0.102 0.154 0 9.000 12.00 allreduce/ring 20.00 2.00 1.50"
    assert first.split() == cells.split()
    assert second.split()[-3:] == ["N/A"] * 3
    for name in ("size", "time", "busbw", "#wrong", "p95", "mpi", "compiled"):
        end = heading.index(name) + len(name)
        for line in (first, second):
            assert line[end - 1] != " "
            assert line[end : end + 1] in ("", " ")
    assert any("MPI 5.0" in line for line in lines)
    assert any("4 ranks on 1 node, some processor, load 0.50" in line for line in lines)
    assert "# 5 warm-up calls" in lines
    assert "# wrong elements: 0" in lines


def test_memory_has_a_column_and_a_line_of_its_own():
    rows = pair(versus="gloo", versus_us=20.0, ratio=2.0)
    lines = printed(
        lambda f: table.print_header(INFO, versus="gloo", symmetric=True, file=f),
        *(lambda f, r=r: table.print_row(r, versus="gloo", symmetric=True, file=f) for r in rows),
        lambda f: table.print_footer(rows, file=f),
    )
    (heading,) = (line for line in lines if "algbw" in line)
    end = heading.index("memory") + len("memory")
    found = [line for line in lines if not line.startswith("#")]
    assert heading.split()[-4:] == ["algorithm", "memory", "gloo", "ratio"]
    assert [line[:end].split()[-1] for line in found] == ["private", "shared"]
    assert any("time of private / shared: at least 1 in 1 of 1 rows" in line for line in lines)
    drawn = curves.lines_of([("x", Results(INFO, rows))], "allreduce")
    assert [line.label for line in drawn] == ["ring, private", "ring, shared", "gloo"]


def test_gloo_has_no_compiled_caller():
    compared = row(versus="gloo", versus_us=20.0, ratio=2.0)
    heading, cells = (
        line.split()
        for line in printed(
            lambda f: table.print_header(INFO, versus="gloo", file=f),
            lambda f: table.print_row(compared, versus="gloo", file=f),
        )
        if "algbw" in line or not line.startswith("#")
    )
    assert heading[-3:] == ["algorithm", "gloo", "ratio"]
    assert cells[-3:] == ["allreduce/ring", "20.00", "2.00"]
    (ring, rival) = curves.lines_of([("x", Results(INFO, (compared,)))], "allreduce")
    assert (ring.label, rival.label, rival.kind) == ("ring", "gloo", "versus")


def test_a_millisecond_is_shown_as_one():
    (line,) = printed(lambda f: table.print_row(row(time_us=1000.0), file=f))
    assert line.split()[5] == "1000.0"


def test_wrong_elements_are_announced():
    lines = printed(lambda f: table.print_footer([row(), replace(row(), wrong=3)], file=f))
    assert "# wrong elements: 3, in 1 rows: FAILED" in lines


def test_rows_appear_as_they_come():
    class Watched(io.StringIO):
        flushed = 0

        def flush(self):
            self.flushed += 1

    file = Watched()
    table.print_row(row(), file=file)
    assert file.flushed


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float16", 2), ("bfloat16", 2), ("int64", 8), ("bool", 1), ("complex64", 8)],
)
def test_itemsizes(dtype, size):
    assert table.itemsize(dtype) == size


def test_crossover_is_found_between_the_sizes():
    lines = curves.lines_of([("a", racing())], "allreduce")
    assert [line.label for line in lines] == ["low", "high", "native (mpi)"]
    first, second = curves.crossovers(lines)
    assert (first.before, first.after) == ("low", "high")
    assert 700 < first.nbytes < 1400
    assert (second.before, second.after) == ("high", "native (mpi)")
    assert 4096 < second.nbytes < 65536


def test_noise_makes_no_crossovers():
    rows = []
    for i in range(12):
        rows.append(row(2**i, 10.0 + 0.2 * (i % 2), "allreduce/a"))
        rows.append(row(2**i, 10.2 - 0.2 * (i % 2), "allreduce/b"))
    assert not curves.crossovers(curves.lines_of([("x", Results(INFO, tuple(rows)))], "allreduce"))


def test_what_differs_is_told():
    rows = (row(), row(in_place=True))
    labels = [line.label for line in curves.lines_of([("x", Results(INFO, rows))], "allreduce")]
    assert labels == ["ring, out of place", "ring, in place"]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_picture(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    plot.draw([("one", racing()), ("two", racing())], path)
    assert path.stat().st_size > 5000


def test_picture_of_one_rank_and_of_one_size(tmp_path):
    alone = Results(replace(INFO, ranks=1), (row(8),))
    plot.draw([("one", alone)], tmp_path / "a.png")
    with pytest.raises(ConfigError, match="nothing to draw"):
        plot.draw([("none", Results(INFO, (row(0),)))], tmp_path / "b.png")


def test_missing_matplotlib_is_explained(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'hpcoll\[plot\]'"):
        plot.draw([("a", racing())], tmp_path / "a.png")


def test_sizes():
    assert sizes_between(8, 512, 4, 4) == (8, 32, 128, 512)
    assert sizes_between(0, 16, 2, 4) == (0, 4, 8, 16)
    assert sizes_between(8, 64, 2, 16) == (16, 32, 64)
    assert sizes_between(10, 10, 2, 1) == (10,)
    assert sizes_between(0, 0, 2, 4) == (0,)
    assert sizes_between(8, 64 * 2**20, 4, 4)[-1] == 2**25


@pytest.mark.parametrize(
    ("low", "high", "factor", "words"),
    [
        (16, 8, 2, "above --max-bytes"),
        (5, 7, 2, "no whole element"),
        (8, 2**62, 1 + 1e-9, "too near to 1"),
        (8, 2**62, 1.01, "more than 1000"),
        (8, 16, 1, "above 1"),
    ],
)
def test_sizes_that_make_no_sense(low, high, factor, words):
    with pytest.raises(ConfigError, match=words):
        sizes_between(low, high, factor, 8)


@given(
    st.integers(0, 2**40), st.integers(0, 2**40), st.floats(1.05, 100), st.sampled_from([1, 2, 16])
)
def test_sizes_are_whole_ascending_and_within(low, high, factor, itemsize):
    try:
        sizes = sizes_between(low, high, factor, itemsize)
    except ConfigError:
        return
    assert sizes == tuple(sorted(set(sizes)))
    assert all(low <= s <= high and s % itemsize == 0 for s in sizes)
