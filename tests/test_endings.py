"""What happens when ranks disagree, stay away, fail or die: real jobs under mpiexec.

The programs are in tests/ranks. Their ranks write what happened to files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcoll.bench.launch import launcher, mpiexec_kind
from hpcoll.errors import TransportUnavailable

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 60.0
SOON_S = 10.0
"""What "within seconds" means here; two cores may be busy with other things."""


class Job:
    """A running MPI job."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, ranks: int) -> None:
        self.process = process
        self.folder = folder
        self.ranks = ranks
        self.started_at = time.time()

    def lines(self, rank: int) -> list[dict[str, Any]]:
        """What a rank has written so far."""
        path = self.folder / f"rank{rank}"
        return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []

    def events(self, name: str) -> list[list[dict[str, Any]]]:
        """For each rank, its lines of one kind."""
        return [[x for x in self.lines(r) if x["event"] == name] for r in range(self.ranks)]

    def one(self, name: str) -> list[dict[str, Any]]:
        """For each rank, its only line of one kind."""
        found = self.events(name)
        assert all(len(x) == 1 for x in found), (name, found, self.shown())
        return [x[0] for x in found]

    def wait_for(self, name: str, ranks: list[int] | None = None) -> None:
        """Wait until ranks have written a line."""
        deadline = time.monotonic() + LIMIT_S
        wanted = range(self.ranks) if ranks is None else ranks
        while not all(self.events(name)[r] for r in wanted):
            if time.monotonic() > deadline or self.process.poll() is not None:
                pytest.fail(f"no {name!r} from all of ranks {list(wanted)}:\n{self.shown()}")
            time.sleep(0.01)

    def pids(self) -> list[int]:
        """The processes of the ranks that have written anything."""
        return [self.lines(r)[0]["pid"] for r in range(self.ranks) if self.lines(r)]

    def shown(self) -> str:
        """What the job printed so far."""
        return "".join((self.folder / n).read_text(errors="replace") for n in ("out", "err"))

    @property
    def err(self) -> str:
        """Its stderr so far."""
        return (self.folder / "err").read_text(errors="replace")

    def end(self, limit_s: float = LIMIT_S) -> int:
        """Wait for the end; return the exit status."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the job did not end within {limit_s} s:\n{self.shown()}")


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_all(job: Job) -> None:
    """Leave nothing of a job behind."""
    if job.process.poll() is None:
        job.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(5)
    for pid in [job.process.pid, *job.pids()]:
        if alive(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    job.process.wait(5)


@contextlib.contextmanager
def starter(within: Path) -> Iterator[Callable[..., Job]]:
    """What starts a program of tests/ranks in a job."""
    jobs: list[Job] = []

    def start(program: str, *arguments: str, ranks: int, extra: tuple[str, ...] = (),
              **settings: str) -> Job:  # fmt: skip
        try:
            prefix, environment = launcher(ranks, extra)
        except TransportUnavailable as error:
            pytest.skip(f"NOT TESTED OVER MPI: {error}")
        folder = within / str(len(jobs))
        folder.mkdir()
        path = os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH"))))
        environment |= {"PYTHONPATH": path, "HPCOLL__TEST_FOLDER": str(folder)}
        environment |= {"HPCOLL_TIMEOUT_S": "30", **settings}
        command = [*prefix, sys.executable, str(ROOT / "tests" / "ranks" / program), *arguments]
        with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                text=True, start_new_session=True,
            )  # fmt: skip
        jobs.append(Job(process, folder, ranks))
        return jobs[-1]

    try:
        yield start
    finally:
        for job in jobs:
            kill_all(job)


Start = Callable[..., Job]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a program of tests/ranks in a job."""
    with starter(tmp_path) as found:
        yield found


# -- ranks that disagree -----------------------------------------------------------------

VALUES = {
    "count": ("of {usual} float32", "of {odd} float32"),
    "dtype": ("float32", "int32"),
    "op": ("op sum", "op max"),
    "algorithm": ("allreduce/ring", "allreduce/recursive_doubling"),
    "collective": ("allreduce/ring", "reduce_scatter/ring"),
    "root": ("root 0", "root {last}"),
    "order": ("float32", "int32"),
    "two roots": ("root 0", "root {last}"),
}
FORMS = [(w, "blocking") for w in VALUES] + [("count", "started"), ("count", "persistent")]


@pytest.fixture(scope="module", params=[2, 4], ids="{}ranks".format)
def disagreeing(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Job]:
    """A job that has gone through all the ways to disagree."""
    with starter(tmp_path_factory.mktemp("mismatch")) as start:
        job = start("mismatch.py", ranks=request.param)
        assert job.end(LIMIT_S + 60) == 0, job.shown()
        yield job


@pytest.mark.parametrize("when", ["miss", "hit"])
@pytest.mark.parametrize(("what", "how"), FORMS)
def test_mismatch(disagreeing: Job, what: str, how: str, when: str) -> None:
    """All ranks say the same, and name the odd rank and both values."""
    job, case = disagreeing, f"{what} {when} {how}"
    size, last = job.ranks, job.ranks - 1
    first = job.one(f"{case} 0")
    after = job.one(f"{case} after")
    found = first
    if "root" in what and when == "hit":  # ranks whose part waits for no one see it later
        found = [a if a["kind"] else b for a, b in zip(first, after, strict=True)]
    assert [x["kind"] for x in found] == ["MismatchError"] * size, found
    assert len({x["text"] for x in found}) == 1, found
    numbers = {"usual": 4 * size, "odd": 8 * size, "last": last}
    usual, odd = (v.format(**numbers) for v in VALUES[what])
    text = found[0]["text"]
    others = "0" if size == 2 else f"0-{last - 1}"
    said = dict(p.split(" called ", 1) for p in text.split("disagree: ")[1].split(", but "))
    assert usual in said[f"rank {others}"], text
    assert odd in said[f"rank {last}"], text
    assert max(x["took"] for x in found) < SOON_S, found
    if when == "miss":
        assert [x["kind"] for x in after] == [None] * size, after
        assert [x["kind"] for x in job.one(f"{case} close")] == [None] * size
    else:
        after = [x for x, y in zip(after, first, strict=True) if y["kind"]]
        assert {x["kind"] for x in after} <= {"TransportError"}, after
        assert all("can't be used any more: call" in x["text"] for x in after), after


# -- ranks that refuse, come late or stay away -----------------------------------------------


HEARD = r"rank 1 (has said nothing|said [\d.]+ s ago that it waits in call [1-4] )"
"""Of a missing rank nothing is known, or that it once was slow."""


def kinds(lines: list[dict[str, Any]]) -> list[str | None]:
    """The classes of error that ranks noted."""
    return [x["kind"] for x in lines]


def test_refusal(start: Start) -> None:
    """A rank that refuses a call tells the others; no data had moved on a miss."""
    job = start("missing.py", "refuse", ranks=3)
    assert job.end() == 0, job.shown()
    for when in ("miss", "hit"):
        found = job.one(when)
        assert kinds(found) == ["MismatchError", "MismatchError", "BufferMismatch"]
        for line in found[:2]:
            assert "rank 2 refused call" in line["text"], line
            assert "BufferMismatch: out is read-only" in line["text"], line
        assert max(x["took"] for x in found) < SOON_S
    assert kinds(job.one("after miss")) == [None] * 3
    after = job.one("after hit")
    assert set(kinds(after)) <= {"TransportError", "MismatchError"}, after
    assert all("rank 2 refused call" in x["text"] for x in after), after


def test_missing_rank(start: Start) -> None:
    """Warned of after 1 s, given up after 3 s; the chain of who waits for whom is told."""
    job = start("missing.py", "missing", ranks=3)
    assert job.end() == 0, job.shown()
    found = job.one("missing")
    waiting, late = [found[0], found[2]], found[1]
    for line in waiting:
        assert line["kind"] == "CollectiveTimeout", found
        assert 2.5 < line["took"] < 3 + SOON_S
        assert "allreduce/ring step" in line["text"]
        assert "waited 3" in line["text"]
        assert re.search(HEARD, line["text"]), line
    assert late["kind"] in ("TransportError", "CollectiveTimeout"), late
    assert "gave the communicator up" in late["text"]
    assert late["took"] < SOON_S
    warned = [[x["text"] for x in lines] for lines in job.events("warning")]
    assert [len(x) for x in warned] == [1, 0, 1], warned
    assert "rank 2/3 allreduce/ring step 0: waited 1" in warned[2][0]
    assert re.search(rf"s for rank 1 \({HEARD}", warned[2][0]), warned
    assert re.search(rf"for rank 2 \(rank 2 itself waits for rank 1; {HEARD}", warned[0][0]), warned
    again = job.one("again")
    assert kinds(again) == ["TransportError"] * 3
    assert all("can't be used any more" in x["text"] for x in again)


def test_late_and_missing(start: Start) -> None:
    """A late rank does no harm; time-outs hold in every form of call."""
    job = start("missing.py", "late_and_missing", ranks=3)
    assert job.end() == 0, job.shown()
    assert kinds(job.one("late")) == [None] * 3
    for name in ("agreeing", "plan", "started"):
        lines = [x[0] for x in job.events(name) if x]
        assert kinds(lines) == ["CollectiveTimeout"] * 2, lines
        assert all("waited" in x["text"] and "for rank 1 (" in x["text"] for x in lines), lines
        assert max(x["took"] for x in lines) < 1 + SOON_S
    lines = [x[0] for x in job.events("unusable") if x]
    assert kinds(lines) == ["TransportError"] * 2
    assert all("can't be used any more" in x["text"] for x in lines), lines


def test_missing_in_groups(start: Start) -> None:
    """Splits, dups, closing and making communicators are bounded too."""
    job = start("missing.py", "groups", ranks=3)
    assert job.end() == 0, job.shown()
    for name in ("split", "dup", "communicator"):
        lines = [x[0] for x in job.events(name) if x]
        assert kinds(lines) == ["CollectiveTimeout"] * 2, (name, lines)
        assert max(x["took"] for x in lines) < 1 + SOON_S
        told = "other ranks" if name == "communicator" else "for rank 1 ("
        assert all(told in x["text"] for x in lines), lines
    assert kinds([x[0] for x in job.events("close") if x]) == [None] * 2


def test_ended_rank(start: Start) -> None:
    """Who waits for a rank that has ended is told at once."""
    job = start("missing.py", "ended", ranks=3)
    assert job.end() == 0, job.shown()
    for name in ("hit", "miss"):
        lines = [x[0] for x in job.events(name) if x]
        assert kinds(lines) == ["PeerFailure"] * 2, lines
        assert all("rank 1 has ended after call" in x["text"] for x in lines), lines
        assert max(x["took"] for x in lines) < 2.0, lines


def test_dispute_while_a_rank_computes(start: Start) -> None:
    """It doesn't wait for a rank that computes, which gets the same verdict later."""
    job = start("missing.py", "computing", ranks=3)
    assert job.end() == 0, job.shown()
    found = job.one("dispute")
    assert kinds(found) == ["MismatchError"] * 3
    assert "rank 1 said nothing" in found[0]["text"]
    assert found[0]["text"] == found[2]["text"]
    assert max(x["took"] for x in found) < SOON_S
    for name in ("after 0", "after 1", "after 2", "close"):
        assert kinds(job.one(name)) == [None] * 3, job.one(name)


def test_old_letters_mean_nothing(start: Start) -> None:
    """Disputes and refusals leave nothing behind that could spoil a later call."""
    job = start("missing.py", "late_dispute", ranks=3)
    assert job.end() == 0, job.shown()
    for turn in range(3):
        assert kinds(job.one(f"dispute {turn}")) == ["MismatchError"] * 3
        assert len({x["text"] for x in job.one(f"dispute {turn}")}) == 1
        assert kinds(job.one(f"fine {turn}")) == [None] * 3
        refused = job.one(f"refused {turn}")
        assert kinds(refused) == ["MismatchError", "BufferMismatch", "MismatchError"]
    assert kinds(job.one("close")) == [None] * 3


# -- how a program ends -----------------------------------------------------------------------


def gone_soon(job: Job, limit_s: float = 10.0) -> None:
    """No process of the job is left."""
    deadline = time.monotonic() + limit_s
    while any(map(alive, job.pids())):
        assert time.monotonic() < deadline, "processes of the job are left"
        time.sleep(0.05)


def took(job: Job, since: str, rank: int) -> float:
    """Seconds from a rank's line until now."""
    return time.time() - job.events(since)[rank][-1]["t"]


ABORTS = {"raise": "RuntimeError: deliberate", "exit": "exit status 3"}


ENDS = [
    ("raise", "collective"), ("raise", "compute"), ("raise", "native"),
    ("exit", "collective"), ("exit", "agreeing"), ("exit", "compute"), ("exit", "native"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "meanwhile"), ENDS)
def test_one_rank_ends_the_job(start: Start, how: str, meanwhile: str) -> None:
    """An exception or a non-zero status on one rank ends the job, with the reason on stderr."""
    job = start("ending.py", how, meanwhile, ranks=3)
    job.wait_for("ending", [2])
    assert job.end(20) != 0
    assert took(job, "ending", 2) < SOON_S, job.shown()
    assert ABORTS[how] in job.err
    assert "hpcoll: rank 2 ends by" in job.err
    if how == "raise":
        assert "the program's own hook saw RuntimeError" in job.err
        assert "in end" in job.err
    gone_soon(job)


@pytest.mark.parametrize(
    ("how", "told"), [("builtin-exit", "exit status 3"), ("message", "a message and status 1")]
)
def test_other_ways_to_exit(start: Start, how: str, told: str) -> None:
    """The exit of the site module, and a message for a status."""
    job = start("ending.py", how, "compute", ranks=2)
    job.wait_for("ending", [1])
    assert job.end(20) != 0
    assert told in job.err
    gone_soon(job)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("settings", "HPCOLL_TIMEOUT_S=never"),
        ("transport", "rank 2 called communicator over transport carrier_pigeon, but rank 0-1"),
    ],
)
def test_one_rank_cannot_open(start: Start, how: str, told: str) -> None:
    """A rank that fails in Communicator() does not leave the others waiting."""
    job = start("ending.py", how, "none", ranks=3)
    assert job.end(20) != 0
    assert told.replace("=never", "='never'") in job.err, job.err
    gone_soon(job)


@pytest.mark.parametrize("how", ["caught", "zero", "none"])
def test_quiet_endings(start: Start, how: str) -> None:
    """A SystemExit that is caught, status 0 and the end of the program end nothing else."""
    job = start("ending.py", how, "none", ranks=2)
    assert job.end() == 0, job.shown()
    assert job.shown() == ""
    assert len(job.events("end")[0]) == 1


def test_hooks_off(start: Start) -> None:
    """Without hooks the failed rank just leaves: those who wait for it are told."""
    job = start("ending.py", "raise", "collective", ranks=3, HPCOLL_HOOKS="0")
    assert job.end(20) != 0
    errors = [x[0] for x in job.events("error") if x]
    assert "hpcoll: rank" not in job.err
    assert all("rank 2 has ended after call" in x["text"] for x in errors), errors
    gone_soon(job)


def test_one_rank_has_no_hooks(start: Start) -> None:
    """A program alone ends as it would without hpcoll."""
    job = start("ending.py", "raise", "none", ranks=1)
    assert job.end(20) != 0
    assert "RuntimeError: deliberate" in job.err
    assert "aborting" not in job.err


def test_forked_child(start: Start) -> None:
    """A child of a rank can't use its communicator, and its end is its own affair."""
    job = start("ending.py", "forked", "none", ranks=2)
    assert job.end() == 0, job.shown()
    child = job.events("child")[1][0]
    assert child["kind"] == "TransportError"
    assert "forked off" in child["text"]
    assert job.events("child-status")[1][0]["status"] == 5
    assert len(job.events("end")[0]) == len(job.events("end")[1]) == 1


SIGNALS = [
    (signal.SIGINT, "mpiexec"), (signal.SIGTERM, "mpiexec"),
    (signal.SIGINT, "rank"), (signal.SIGTERM, "rank"), (signal.SIGKILL, "rank"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "target"), SIGNALS)
def test_signal(start: Start, number: signal.Signals, target: str) -> None:
    """A signal to the launcher or to a waiting rank ends the job and leaves nothing behind."""
    before = set(os.listdir("/dev/shm"))
    job = start("ending.py", "wait", "collective", ranks=3)
    job.wait_for("ready")
    time.sleep(0.3)
    sent_at = time.time()
    os.kill(job.process.pid if target == "mpiexec" else job.pids()[0], number)
    assert job.end(20) != 0
    assert time.time() - sent_at < SOON_S
    gone_soon(job)
    # Files of the MPI library may be left by SIGKILL; those of hpcoll never are.
    assert not [x for x in set(os.listdir("/dev/shm")) - before if "hpcoll" in x]
    if (number, target) == (signal.SIGINT, "rank"):
        assert job.events("interrupted")[0][0]["t"] - sent_at < 1.0
        assert "KeyboardInterrupt" in job.err


def test_death_under_ulfm(start: Start) -> None:
    """A death is seen by who waits for the dead rank, and by who waits behind another."""
    if mpiexec_kind() != "openmpi":
        pytest.skip("only Open MPI goes on after the death of a rank (mpiexec --with-ft ulfm)")
    job = start("ending.py", "sigkill", "collective", ranks=3, extra=("--with-ft", "ulfm"))
    job.wait_for("end", [0, 1])
    died_at = job.events("ending")[2][0]["t"]
    for rank in (0, 1):
        error = job.events("error")[rank][0]
        assert error["kind"] == "PeerFailure", error
        assert "rank 2 died" in error["text"], error
        assert error["t"] - died_at < 2.0
    job.end(20)
    assert "Traceback" not in job.err
    gone_soon(job)


# -- progress, and the lives of communicators ------------------------------------------------


def test_any_wait_advances_everything(start: Start) -> None:
    """Ranks that wait in different orders do not block each other."""
    job = start("progressing.py", "several", ranks=3)
    assert job.end() == 0, job.shown()
    job.one("end")


def test_progress_thread(start: Start) -> None:
    """A rank that computes holds up the others only without the thread."""
    seconds = {}
    for progress in ("none", "thread"):
        job = start("progressing.py", "computing", ranks=2, HPCOLL_PROGRESS=progress)
        assert job.end() == 0, job.shown()
        assert job.shown() == ""
        lines = job.one("wait")
        assert kinds(lines) == [None] * 2, lines
        seconds[progress] = lines[1]["took"]
    assert seconds["thread"] < 0.6 * seconds["none"], seconds


def test_signals_are_served(start: Start) -> None:
    """A timer of 0.1 s ticks while a rank waits for 2 s."""
    job = start("progressing.py", "signals", ranks=2)
    assert job.end() == 0, job.shown()
    counts = [x["count"] for x in job.events("alarms")[0]]
    assert len(counts) == 2
    assert min(counts) >= 12, counts


@pytest.mark.parametrize("what", ["rounds", "dropped", "unwaited"])
def test_lives_of_communicators(start: Start, what: str) -> None:
    """Made, closed and dropped in any order: no crash, no message at the end."""
    job = start("progressing.py", what, ranks=3)
    assert job.end() == 0, job.shown()
    assert job.shown() == ""
    job.one("end")
    closed = [x for lines in job.events("closed") for x in lines]
    assert all("it was closed" in x["text"] for x in closed), closed
