"""What the README shows is run: its algorithm is proved, its program runs on ranks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcoll.bench.launch import find_mpiexec, launcher
from hpcoll.errors import TransportUnavailable
from hpcoll.schedule.registry import load_file
from hpcoll.schedule.verify import prove

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_algorithm_is_proved_and_short(tmp_path: Path) -> None:
    text = blocks("python")[0]
    body = text.split("@algorithm", 1)[1]
    assert len(body.splitlines()) <= 15
    file = tmp_path / "my_algorithm.py"
    file.write_text(text)
    (loaded,) = load_file(file)
    assert loaded.full_name == "allgather/my_exchange"
    proofs = [prove(loaded, p) for p in range(1, 21)]
    assert [p.ranks for p in proofs if p.proved] == list(range(2, 21, 2))
    assert all(p.skipped == "needs an even number of ranks" for p in proofs if not p.proved)
    assert all(p.counts is not None and p.counts.rounds == p.ranks // 2 for p in proofs if p.proved)


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_program_runs(tmp_path: Path, ranks: int) -> None:
    try:
        find_mpiexec()
    except TransportUnavailable as error:
        pytest.skip(str(error))
    program = tmp_path / "program.py"
    program.write_text(blocks("python")[1])
    command, environment = launcher(ranks)
    done = subprocess.run(
        [*command, sys.executable, str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "least time by the model" in done.stdout


def test_every_command_shown_exists() -> None:
    from click.testing import CliRunner

    from hpcoll.cli import cli

    shown = set(re.findall(r"^(?:\.venv/bin/)?hpcoll (\w+)", "\n".join(blocks("sh")), re.MULTILINE))
    assert shown >= {"verify", "show", "bench", "compare"}
    for name in shown:
        assert CliRunner().invoke(cli, [name, "--help"]).exit_code == 0


def test_the_table_of_algorithms_is_what_the_command_prints() -> None:
    """After a change of algorithms: put the command's output between the marks."""
    from click.testing import CliRunner

    from hpcoll.cli import cli

    shown = re.search(
        r"<!-- algorithms: hpcoll (.*) -->\n(.*)<!-- end -->", README.read_text(), re.S
    )
    assert shown is not None
    printed = CliRunner().invoke(cli, shown[1].split())
    assert printed.exit_code == 0
    assert printed.stdout == shown[2]
