"""The programs in jobs/ run on ranks and do what they say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpcoll.bench.launch import find_mpiexec, launcher
from hpcoll.errors import TransportUnavailable

JOBS = Path(__file__).resolve().parent.parent / "jobs"


def train(ranks: int, json_file: Path, *options: str) -> tuple[list[float], str]:
    try:
        find_mpiexec()
    except TransportUnavailable as error:
        pytest.skip(str(error))
    command, environment = launcher(ranks)
    environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] = "1"
    program = [sys.executable, str(JOBS / "train_digits.py"), "--epochs", "4"]
    done = subprocess.run(
        [*command, *program, "--json", str(json_file), *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(json_file.read_text())["losses"], done.stdout


def test_training_is_that_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'hpcoll[test]'")
    alone, _ = train(1, tmp_path / "1.json")
    three, shown = train(3, tmp_path / "3.json", "--algorithm", "ring", "--compare")
    assert len(alone) == 4
    assert alone[-1] < alone[0] / 2, "it learns"
    np.testing.assert_allclose(three, alone, rtol=1e-9)
    assert "largest relative difference" in shown


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_batch_templates_parse() -> None:
    templates = sorted(JOBS.glob("*.sbatch"))
    assert templates
    for template in templates:
        subprocess.run(["bash", "-n", str(template)], check=True)
        lines = template.read_text().splitlines()
        commands = [i for i, line in enumerate(lines) if line and not line.startswith("#")]
        directives = [i for i, line in enumerate(lines) if line.startswith("#SBATCH")]
        assert max(directives) < min(commands), "Slurm ignores #SBATCH after the first command"
