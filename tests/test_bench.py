"""hpcoll bench as a user runs it: starts its ranks, checks every element, writes its files."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hpcoll.bench.gloo import COLLECTIVES as GLOO
from hpcoll.bench.launch import find_mpiexec, launcher
from hpcoll.errors import TransportUnavailable
from hpcoll.schedule.collectives import COLLECTIVES, VECTOR_FORMS

FIELDS = {
    "collective", "bytes", "dtype", "op", "root", "in_place", "algorithm", "transport",
    "iterations", "time_us", "min_us", "p95_us", "algbw_GBps", "busbw_GBps", "wrong", "versus",
    "versus_us", "ratio", "compiled_versus_us", "compiled_ratio", "call_us", "memory",
}  # fmt: skip

WRONG = """
from hpcoll.schedule import algorithm, recv, send

@algorithm("broadcast")
def forgets_the_last(p):
    if p.rank == 0:
        yield [send(r, 0) for r in range(1, p.size - 1)]
    elif p.rank < p.size - 1:
        yield recv(0, 0)
"""


@pytest.fixture(autouse=True)
def _needs_mpiexec() -> None:
    try:
        find_mpiexec()
    except TransportUnavailable as error:
        pytest.skip(str(error))


def bench(*options: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "hpcoll", "bench", *options],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


SMALL = ("--iters", "4", "--warmup", "1")


def test_the_files_hold_what_was_measured(tmp_path: Path) -> None:
    json_file, csv_file, plot = (tmp_path / f"b.{kind}" for kind in ("json", "csv", "png"))
    done = bench(
        "allreduce", "--ranks", "2", "--min-bytes", "8", "--max-bytes", "64K", "--factor", "64",
        "--versus", "mpi", *SMALL, "--json", str(json_file), "--csv", str(csv_file),
        "--plot", str(plot),
    )  # fmt: skip
    results = json.loads(json_file.read_text())
    assert results["ranks"] == 2
    assert results["nodes"] == 1
    assert {"hpcoll", "mpi", "cpu", "settings", "native_settings"} <= set(results)
    assert [row["bytes"] for row in results["rows"]] == [8, 512, 32768]
    for row in results["rows"]:
        assert set(row) >= FIELDS
        assert row["wrong"] == 0
        assert row["iterations"] >= 4
        assert 0 < row["min_us"] <= row["time_us"]
        assert row["ratio"] == pytest.approx(row["versus_us"] / row["time_us"])
        assert row["call_us"] > 0
        assert row["busbw_GBps"] == pytest.approx(row["algbw_GBps"])
    assert csv_file.read_text().count("\n") == 4
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "wrong elements: 0" in done.stdout


def on_three_ranks(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script of tests/ranks, which must end with 0."""
    command, environment = launcher(3)
    done = subprocess.run(
        [*command, sys.executable, str(Path(__file__).parent / "ranks" / script)],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_every_collective_is_right() -> None:
    """All collectives and v-forms, in place and symmetric too, in one job of three ranks."""
    done = on_three_ranks("bench_all.py")
    measured = 3 * len(COLLECTIVES) + len(VECTOR_FORMS) - 2
    assert done.stdout.count("wrong elements: 0") == measured


def test_symmetric_measures_private_and_shared_arrays(tmp_path: Path) -> None:
    file, plot = tmp_path / "s.json", tmp_path / "s.png"
    done = bench(
        "allreduce", "--ranks", "2", "--transport", "shm", "--symmetric", "--versus", "mpi",
        "--min-bytes", "64K", "--max-bytes", "64K", *SMALL, "--algorithm", "ring", "--algorithm",
        "recursive_doubling", "--json", str(file), "--plot", str(plot),
    )  # fmt: skip
    rows = json.loads(file.read_text())["rows"]
    assert [(row["algorithm"].partition("/")[2], row["memory"]) for row in rows] == [
        ("ring", "private"), ("ring", "shared"),
        ("recursive_doubling", "private"), ("recursive_doubling", "shared"),
    ]  # fmt: skip
    assert len({row["versus_us"] for row in rows}) == 1, "all ran interleaved with one rival"
    assert all(row["ratio"] == pytest.approx(row["versus_us"] / row["time_us"]) for row in rows)
    assert "time of private / shared" in done.stdout
    assert "wrong elements: 0" in done.stdout
    done = bench("allreduce", "--ranks", "2", "--transport", "mpi", "--symmetric", status=2)
    assert "--symmetric needs ranks that share memory" in done.stderr
    assert "the transport is mpi: asked for by name" in done.stderr
    assert not done.stdout


@pytest.mark.skipif(find_spec("torch") is None, reason="--versus gloo needs torch: not installed")
def test_every_collective_of_gloo_is_right() -> None:
    """What gloo has, in place too, in one job of three ranks."""
    done = on_three_ranks("bench_gloo.py")
    assert done.stdout.count("wrong elements: 0") == 2 * len(GLOO) - 2
    assert "Warning" not in done.stderr


@pytest.mark.skipif(find_spec("torch") is None, reason="--versus gloo needs torch: not installed")
def test_rows_of_gloo_and_what_it_lacks(tmp_path: Path) -> None:
    file, plot = tmp_path / "gloo.json", tmp_path / "gloo.png"
    done = bench(
        "allreduce", "--ranks", "2", "--min-bytes", "8", "--max-bytes", "4K", "--factor", "512",
        "--versus", "gloo", *SMALL, "--json", str(file), "--plot", str(plot),
    )  # fmt: skip
    rows = json.loads(file.read_text())["rows"]
    assert [row["bytes"] for row in rows] == [8, 4096]
    for row in rows:
        assert row["versus"] == "gloo"
        assert row["ratio"] == pytest.approx(row["versus_us"] / row["time_us"])
        assert row["ratio_low"] <= row["ratio_high"]
        assert row["compiled_versus_us"] is row["compiled_ratio"] is None
    assert "compiled ratio" not in done.stdout
    assert "allreduce has no out-of-place form there" in done.stdout
    done = bench("allreduce", "--ranks", "2", "--dtype", "uint64", "--versus", "gloo", status=2)
    assert "--versus gloo: gloo can't run allreduce of uint64 with op sum: rank" in done.stderr
    assert "Traceback" not in done.stderr


def test_all_algorithms_and_a_second_look(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    bench("allgather", "--ranks", "4", "--min-bytes", "4K", "--max-bytes", "4K", *SMALL,
          "--algorithm", "all", "--json", str(file))  # fmt: skip
    rows = json.loads(file.read_text())["rows"]
    assert sum(row["confirms"] for row in rows) == 1
    assert len({row["algorithm"] for row in rows}) >= 5


def test_a_wrong_algorithm_is_not_measured(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    done = bench("broadcast", "--ranks", "3", "--min-bytes", "8", "--max-bytes", "8",
                 "--load", str(file), "--algorithm", "forgets_the_last", status=2)  # fmt: skip
    assert "its proof fails" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_elements_end_with_status_1(tmp_path: Path) -> None:
    """The check itself can fail: a fold that is off by one in one element."""
    site = tmp_path / "sitecustomize.py"
    site.write_text(
        "import hpcoll.bench.data as d\n"
        "right = d.Case.expected\n"
        "def off(self, variant):\n"
        "    a = right(self, variant).copy()\n"
        "    a[len(a) // 2] += 1\n"
        "    return a\n"
        "d.Case.expected = off\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "hpcoll", "bench", "allreduce", "--ranks", "2", "--min-bytes",
         "1K", "--max-bytes", "1K", *SMALL],
        capture_output=True, text=True, timeout=120, check=False,
        env={**launcher(2)[1], "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr


def test_inside_a_job_it_uses_the_jobs_ranks() -> None:
    command, environment = launcher(2)
    done = subprocess.run(
        [*command, sys.executable, "-m", "hpcoll", "bench", "barrier", *SMALL],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 ranks on 1 node" in done.stdout
    assert done.stdout.count("wrong elements") == 1, "only rank 0 prints"


def test_the_root_must_be_a_rank() -> None:
    done = bench("broadcast", "--root", "9", "--ranks", "2", status=2)
    assert "9" in done.stderr
    assert "Traceback" not in done.stderr
