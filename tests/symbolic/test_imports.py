"""What importing hpcoll costs: nothing heavy before it is needed."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("numpy", "numba", "mpi4py", "cupy", "click", "rich", "matplotlib")


def loaded_after(statement: str) -> list[str]:
    code = f"import sys; {statement}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return eval(done.stdout)  # a list of names that this test printed itself


def test_import_hpcoll_is_light() -> None:
    assert loaded_after("import hpcoll") == []


def test_the_schedule_layer_needs_the_standard_library_only() -> None:
    statement = (
        "from hpcoll.schedule import registry, verify; "
        "[verify.prove(a, 4) for a in registry.algorithms('allreduce')]"
    )
    assert loaded_after(statement) == []


def test_the_list_needs_no_mpi() -> None:
    statement = (
        "from click.testing import CliRunner; from hpcoll.cli import cli; "
        "r = CliRunner().invoke(cli, ['list', 'barrier']); assert r.exit_code == 0"
    )
    assert not {"mpi4py", "numba", "matplotlib"} & set(loaded_after(statement))
