"""The commands: what they print, their exit statuses, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hpcoll.bench import driver, gloo
from hpcoll.bench.options import BenchOptions
from hpcoll.bench.results import Info, Results, Row, save_json
from hpcoll.cli import cli, steps, values
from hpcoll.errors import ConfigError
from hpcoll.schedule.operations import copy, fold, incoming, recv, recv_reduce, send, src, tmp
from hpcoll.version import __version__

WRONG = """
from hpcoll.schedule import algorithm, recv, recv_reduce, send

@algorithm("allreduce", chunks=lambda p: p.size)
def test_cli_short(p):
    \"\"\"Forgets the last step from 3 ranks on.\"\"\"
    left, right = (p.rank - 1) % p.size, (p.rank + 1) % p.size
    for k in range(p.size - 1):
        yield send(right, (p.rank - k) % p.size), recv_reduce(left, (p.rank - k - 1) % p.size)
    for k in range(p.size - (2 if p.size > 2 else 1)):
        yield send(right, (p.rank - k + 1) % p.size), recv(left, (p.rank - k) % p.size)
"""

PICKY = """
from hpcoll.schedule import algorithm, recv_reduce, send

def even(p, *, radix):
    return None if p.size % 2 == 0 else "needs an even number of ranks"

@algorithm("allreduce", when=even)
def test_cli_picky(p, *, radix: int = 2):
    \"\"\"Works on two ranks.\"\"\"
    if p.size == 2:
        yield send(1 - p.rank, 0), recv_reduce(1 - p.rank, 0, first=p.rank == 1)
"""


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in [n for n in os.environ if n.upper().startswith("HPCOLL_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder, so that a file is loaded once: its algorithms stay registered."""
    made = tmp_path_factory.mktemp("cli")
    (made / "wrong.py").write_text(WRONG)
    (made / "picky.py").write_text(PICKY)
    return made


def run(*args, status=0, env=None):
    done = CliRunner().invoke(cli, [str(a) for a in args], env=env)
    assert done.exit_code == status, done.output
    assert "Traceback" not in done.output
    return done


def refused(*args, env=None):
    """The one line that a bad call prints."""
    done = run(*args, status=2, env=env)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("hpcoll: error: ")
    return line


def process(*args, **extra):
    return subprocess.run(
        [sys.executable, "-m", "hpcoll", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        **extra,
    )


def test_version_and_help():
    assert run("--version").stdout == f"hpcoll {__version__}\n"
    assert run("-h").stdout == run("--help").stdout
    for name in ("list", "show", "verify", "bench", "plot", "env"):
        assert name in run("-h").stdout
        shown = run(name, "--help").stdout
        assert f"Example: hpcoll {name}" in shown or f"hpcoll {name}" in shown.split("Example:")[1]
    assert "Commands:" in run(status=2).stdout


def test_list():
    lines = run("list", "allreduce").stdout.splitlines()
    (ring,) = (line for line in lines if line.startswith("allreduce/ring "))
    assert "14 (3)" in ring
    assert "1.75 (1.75)" in ring
    assert "doi:10.1016/j.jpdc.2008.09.002" in ring
    assert not any("\x1b" in line or "…" in line for line in lines)
    assert any("unproved" in line for line in lines if "allreduce/native" in line)
    assert not any("allgather" in line for line in lines)


def test_list_as_json(folder):
    content = json.loads(
        run("list", "allreduce", "--ranks", 3, "--json", "--load", folder / "picky.py").stdout
    )
    found = {e["algorithm"]: e for e in content["algorithms"]}
    assert found["ring"]["counts"]["rounds"] == 4
    assert found["ring"]["status"] == "proved"
    assert found["native"]["status"] == "unproved"
    assert found["test_cli_picky"]["status"] == "skipped"
    assert found["test_cli_picky"]["tunables"] == {"radix": 2}
    assert "even" in found["test_cli_picky"]["reason"]


def test_show():
    shown = run("show", "allreduce/ring", "--ranks", 4).stdout
    assert "rank 0" in shown
    assert "rank 3" in shown
    assert "send 0 -> rank 1; recv_reduce 3 <- rank 3" in shown
    assert "optimal" in shown
    assert "same bits on all ranks: yes" in shown
    content = json.loads(run("show", "allreduce/ring", "--ranks", 4, "--json").stdout)
    assert sorted(content["steps"]) == ["0", "1", "2", "3"]
    assert content["steps"]["0"][0][0] == {"op": "send", "peers": [1], "chunks": [0], "lane": 0}


def test_show_of_many_ranks_and_of_one():
    shown = run("show", "allreduce/ring", "--ranks", 16).stdout
    assert "rank 0 of 16" in shown
    assert "rank 1 of 16" not in shown
    assert "rank 5 of 16" in run("show", "allreduce/ring", "--ranks", 16, "--steps", 5).stdout


def test_show_of_what_is_not_proved(folder):
    assert "nothing is proved" in run("show", "allreduce/native").stdout
    load = ("--load", folder / "wrong.py")
    shown = run("show", "allreduce/test_cli_short", "--ranks", 3, *load, status=1).stdout
    assert "PROOF FAILED" in shown
    assert "missing: rank 1" in shown
    assert "step" in shown
    load = ("--load", folder / "picky.py")
    assert "needs an even number" in refused(
        "show", "allreduce/test_cli_picky", "--ranks", 3, *load
    )


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (send(1, 0, 1, 2, 5), "send 0-2,5 -> rank 1"),
        (send((1, 3), 4), "send 4 -> ranks 1,3"),
        (send(1), "signal -> rank 1"),
        (send(1, 2, lane=3), "send 2 -> rank 1 lane 3"),
        (recv(1), "wait <- rank 1"),
        (recv(2, (0, 1), (0, 2)), "recv (0,1),(0,2) <- rank 2"),
        (copy(1, src((0, 1))), "copy 1 <- src((0,1))"),
        (copy(tmp(1, "a"), 2), "copy tmp(1,a) <- 2"),
        (recv_reduce(3, 2), "recv_reduce 2 <- rank 3"),
        (recv_reduce(3, 2, first=True), "recv_reduce 2 <- rank 3 (first)"),
        (fold(0, [incoming(1), src(0), incoming(2)]), "fold 0 <- rank 1 + src(0) + rank 2"),
    ],
)
def test_operations_in_words(operation, text):
    assert steps.operation_text(operation) == text


def test_long_chunk_lists_are_shortened_only_where_asked():
    chunks = tuple(range(0, 20, 2))
    assert steps.chunk_list(chunks) == "0,2,4,6,8,10,12,14,16,18"
    assert steps.chunk_list(chunks, 2) == "0,2 and 8 more"


def test_verify():
    lines = run("verify", "allreduce/ring", "allgather", "--ranks", "1-5,8").stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("proved ")
    assert "failed 0 in " in lines[0]
    assert "native: the library's own, has no schedule: 1 x 6 sizes" in lines[0]


def test_verify_prints_the_smallest_counterexample(folder):
    done = run("verify", "--load", folder / "wrong.py", "--ranks", "1-6,9", status=1)
    first, second, summary = done.stdout.splitlines()
    assert first.startswith("FAILED allreduce/test_cli_short at 3 ranks: wrong result: rank 0")
    assert "fails at 4-6,9 ranks too" in second
    assert summary.startswith("proved 2, skipped 0, failed 5 in ")


def test_verify_tells_what_it_skipped(folder):
    load = ("--load", folder / "picky.py")
    name = "allreduce/test_cli_picky:radix=3"
    done = run("verify", name, "--ranks", "1-3", *load)
    assert done.stdout.startswith(
        f"proved 1, skipped 2 ({name}: needs an even number of ranks: 2 sizes), failed 0 in "
    )
    assert "nothing was proved" in run("verify", name, "--ranks", "3", *load, status=1).stderr
    content = json.loads(run("verify", name, "--ranks", "1-3", *load, "--json").stdout)
    assert [r["status"] for r in content["results"]] == ["skipped", "proved", "skipped"]


def test_verify_in_processes(folder):
    args = ("verify", "allreduce/ring", "allreduce/test_cli_short", "--ranks", "1-50", "--json")
    args = (*args, "--load", folder / "wrong.py")
    content = json.loads(run(*args, "--jobs", 2, status=1).stdout)
    assert content["proved"] == 50 + 2
    assert content["failed"] == 48
    assert content["results"][0] == {
        "algorithm": "allreduce/ring", "ranks": 1, "status": "proved", "skipped": None,
        "fault": None, "kind": None, "rank_order": True, "bit_identical": True, "in_place": True,
    }  # fmt: skip
    keys = [(r["algorithm"], r["ranks"]) for r in content["results"]]
    assert keys == [
        (a, p) for a in ("allreduce/ring", "allreduce/test_cli_short") for p in range(1, 51)
    ]


def test_env():
    shown = run("env").stdout
    assert "HPCOLL_TIMEOUT_S" in shown
    assert "1800" in shown
    content = json.loads(run("env", "--json", env={"HPCOLL_HOOKS": "0"}).stdout)
    hooks = next(r for r in content["settings"] if r["field"] == "hooks")
    assert (hooks["default"], hooks["current"]) == ("1", "0")
    assert content["software"]["hpcoll"] == __version__
    assert content["software"]["MPI library"]
    assert "not" not in content["software"]["MPI library"].split()


def test_env_flags_what_is_wrong_and_others_refuse_it():
    environ = {"HPCOLL_TIMEOUT": "3", "HPCOLL_WARN_S": "nan"}
    done = run("env", env=environ, status=2)
    assert "unknown" in done.stdout
    assert "nan (wrong)" in done.stdout
    assert "did you mean HPCOLL_TIMEOUT_S?" in done.stderr
    assert "HPCOLL_WARN_S='nan'" in done.stderr
    for command in (("list",), ("show", "allreduce/ring"), ("verify",), ("bench", "allreduce")):
        assert "did you mean HPCOLL_TIMEOUT_S?" in refused(*command, env={"HPCOLL_TIMEOUT": "3"})
        assert "HPCOLL_HOOKS='x'" in refused(*command, env={"HPCOLL_HOOKS": "x"})


@pytest.fixture
def asked(monkeypatch):
    """What the driver is asked for, without its doing anything."""
    found = []
    monkeypatch.setattr(driver, "main", lambda options: found.append(options) or 0)
    return found


def test_bench_defaults(asked):
    run("bench", "allreduce")
    assert asked == [BenchOptions("allreduce", sizes=tuple(8 * 4**k for k in range(12)))]


def test_bench_options(asked, tmp_path):
    names = {"--json": "a.json", "--csv": "a.csv", "--plot": "a.png"}
    files = [str(part) for key, name in names.items() for part in (key, tmp_path / name)]
    run(
        *("bench", "broadcast", "--ranks", 4, "--min-bytes", 0, "--max-bytes", "1.5K"),
        *("--factor", 16, "--dtype", "float64", "--algorithm", "binomial", "--algorithm", "native"),
        *("--transport", "mpi", "--versus", "mpi", "--in-place", "--root", 3, "--iters", 5),
        *("--warmup", 0, "--symmetric", *files),
    )
    assert asked == [
        BenchOptions(
            collective="broadcast",
            ranks=4,
            sizes=(0, 8, 128),
            dtype="float64",
            op="none",
            algorithms=("broadcast/binomial", "broadcast/native"),
            transport="mpi",
            versus="mpi",
            in_place=True,
            symmetric=True,
            root=3,
            iterations=5,
            warmup=0,
            json=str(tmp_path / "a.json"),
            csv=str(tmp_path / "a.csv"),
            plot=str(tmp_path / "a.png"),
        )
    ]


def test_bench_status_and_transport_of_the_environment(monkeypatch, asked):
    run("bench", "scan", env={"HPCOLL_TRANSPORT": "mpi"})
    assert asked[0].transport == "mpi"
    monkeypatch.setattr(driver, "main", lambda options: 1)
    run("bench", "scan", status=1)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("nope", "unknown collective 'nope'"),
        ("allreduce --iters 0", "'0': give a whole number from 1"),
        ("allreduce --iters -5", "'-5': give a whole number from 1"),
        ("allreduce --iters abc", "'abc': give a whole number"),
        ("allreduce --warmup -1", "'-1': give a whole number from 0"),
        ("allreduce --min-bytes 1M --max-bytes 1K", "above --max-bytes"),
        ("allreduce --min-bytes -1", "'-1' is not a size"),
        ("allreduce --min-bytes 1e6", "'1e6' is not a size"),
        ("allreduce --max-bytes 1KB", "ambiguous"),
        ("allreduce --factor 1", "above 1"),
        ("allreduce --factor 0", "above 1"),
        ("allreduce --factor nan", "above 1"),
        ("allreduce --factor 1.0000001", "too near to 1"),
        ("allreduce --ranks 0", "from 1 to 4096"),
        ("allreduce --ranks 1-4", "one number"),
        ("allreduce --algorithm rign", "did you mean allreduce/ring?"),
        ("allreduce --algorithm RING", "no algorithm 'allreduce/RING'"),
        ("allreduce --algorithm binomial --transport mpi", "allreduce has:"),
        ("allreduce --algorithm all --algorithm ring", "stand alone"),
        ("allreduce --dtype float23", "did you mean float32?"),
        ("allreduce --op summ", "unknown op 'summ'"),
        ("allreduce --dtype int32 --op avg", "can't combine int32"),
        ("allgather --op max", "reduces nothing"),
        ("allreduce --root 1", "has no root"),
        ("broadcast --ranks 2 --root 2", "ranks 0 to 1"),
        ("allreduce --transport mpj", "did you mean mpi?"),
        ("allreduce --versus nccl", "'nccl'"),
        ("barrier --symmetric", "barrier has no arrays"),
        ("allreduce --json no/such/a.json", "no folder"),
        ("allreduce --plot a.gif", "must end in .png"),
        ("allreduce --plot a.png --json a.png", "different files"),
        ("allreduce --load none.py", "no file 'none.py'"),
    ],
)
def test_bench_refuses(asked, args, words):
    assert words in refused("bench", *args.split())
    assert not asked


def test_bench_versus_gloo_needs_torch_and_what_gloo_has(monkeypatch, asked):
    monkeypatch.setattr(gloo, "find_spec", lambda name: None)
    line = refused("bench", "allreduce", "--versus", "gloo")
    assert line == "hpcoll: error: --versus gloo needs torch: pip install torch"
    monkeypatch.setattr(gloo, "find_spec", lambda name: object())
    assert "gloo has no exscan" in refused("bench", "exscan", "--versus", "gloo")
    assert "gloo has no gatherv" in refused("bench", "gatherv", "--versus", "gloo")
    assert "gloo has no op lor" in refused("bench", "reduce", "--versus", "gloo", "--op", "lor")
    assert not asked
    run("bench", "alltoallv", "--versus", "gloo")
    assert asked[0].versus == "gloo"
    assert "torch" not in sys.modules


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("prove", "No such command"),
        ("--nope", "No such option"),
        ("list nope", "unknown collective 'nope'"),
        ("list --ranks x", "'x' is not a list of rank numbers"),
        ("show allreduce/rign", "did you mean allreduce/ring?"),
        ("show ring", "collective/algorithm"),
        ("show allreduce/ring:radix=2", "no tunable 'radix'"),
        ("show allreduce/ring --root 1", "has no root"),
        ("show broadcast/binomial --ranks 4 --root 4", "ranks 0 to 3"),
        ("show allreduce/ring --steps 8", "ranks 0 to 7"),
        ("show allreduce/native --steps 0", "no schedule"),
        ("verify --ranks 0-3", "from 1 to 4096"),
        ("verify --ranks 5-3", "write 3-5"),
        ("verify --ranks ,", "not a list"),
        ("verify --jobs 0", "'0': give a whole number"),
        ("verify nope", "unknown collective"),
        ("plot none.json", "can't be read"),
        ("plot", "Missing argument"),
    ],
)
def test_bad_input_is_one_line(args, words):
    assert words in refused(*args.split())


def test_files_to_load_that_fail(tmp_path):
    file = tmp_path / "bad.py"
    for content, words in (
        ("1/0", "ZeroDivisionError"),
        ("x = 1", "registers no"),
        ("(", "Syntax"),
    ):
        file.write_text(content)
        assert words in refused("verify", "--load", file)


def test_debug_shows_the_traceback():
    done = CliRunner().invoke(cli, ["--debug", "list", "nope"])
    assert done.exit_code == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hpcoll: error: unknown collective")
    assert "Traceback" not in CliRunner().invoke(cli, ["list", "nope"]).stderr


def results(tmp_path, name="a.json"):
    rows = tuple(
        Row("allreduce", 2**k, "float32", "sum", -1, False, f"allreduce/{a}", "mpi", 9,
            t + 2**k / w, t, t + 1, 1.0, 1.0, 0)
        for a, t, w in (("low", 2.0, 100.0), ("high", 9.0, 300.0)) for k in range(3, 20)
    )  # fmt: skip
    save_json(Results(Info("0.1", "MPI", 4, 1, "cpu"), rows), tmp_path / name)
    return tmp_path / name


def test_plot(tmp_path):
    one, two = results(tmp_path), results(tmp_path, "b.json")
    assert run("plot", one).stderr == f"wrote {tmp_path / 'a.png'}\n"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    run("plot", one, two, "-o", tmp_path / "both.svg")
    assert "<svg" in (tmp_path / "both.svg").read_text()
    two.write_text(two.read_text()[:900])
    assert "b.json: is not JSON" in refused("plot", one, two)
    assert "no folder" in refused("plot", one, "-o", tmp_path / "none" / "x.png")
    assert "must end in" in refused("plot", one, "-o", tmp_path / "x.jpg")


def test_rank_lists():
    assert values.parse_ranks("1-3,48, 2,64") == (1, 2, 3, 48, 64)
    assert values.format_ranks((1, 2, 3, 48)) == "1-3,48"


@given(st.text() | st.from_regex(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9 -]{1,6}){0,3}", fullmatch=True))
def test_any_text_is_a_rank_list_or_a_config_error(text):
    try:
        ranks = values.parse_ranks(text)
    except ConfigError as error:
        message = str(error)
    else:
        assert ranks == tuple(sorted(set(ranks)))
        assert values.parse_ranks(values.format_ranks(ranks)) == ranks
        return
    assert "'" in message or '"' in message


def test_as_a_module_and_in_a_pipe():
    done = process("list", "allreduce", env={**os.environ, "COLUMNS": "40", "FORCE_COLOR": "1"})
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "doi:10.1016/j.jpdc.2008.09.002" in done.stdout


@pytest.mark.parametrize("args", [["list"], ["show", "allreduce/ring", "--ranks", "64"]])
def test_a_broken_pipe_is_silent(args):
    with subprocess.Popen(
        [sys.executable, "-m", "hpcoll", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(30) == 141


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_all_processes_without_a_traceback(number, status):
    with subprocess.Popen(
        [sys.executable, "-m", "hpcoll", "verify", "--ranks", "1-256", "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell starts background jobs with SIGINT ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as child:
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        deadline = time.monotonic() + 20
        while len(children.read_text().split()) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        started = children.read_text().split()
        os.killpg(child.pid, number) if number is signal.SIGINT else child.send_signal(number)
        out, err = child.communicate(timeout=20)
    assert child.returncode == status
    assert out == ""
    assert err.strip() == ""
    deadline = time.monotonic() + 5
    while any(map(is_running, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert started
    assert not any(map(is_running, started))


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
