"""Several processes make the same model as one, up to rounding."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from maskropolis.training.masked.mlm import train_mlm


@pytest.mark.slow
def test_two_processes_train_what_one_does(options, tmp_path):
    made = options()
    train_mlm(made, tmp_path / "one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    script = f"""
import torch
from pathlib import Path
from maskropolis.training.masked.mlm import train_mlm
from maskropolis.training.masked.options import Options
torch.set_num_threads(1)
result = train_mlm({made!r}, Path({str(tmp_path / "two")!r}))
print(result is None)
"""
    team = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common = {**os.environ, **team, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    members = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [member.communicate(timeout=300) for member in members]
    assert [out.split()[-1:] for out, _ in said] == [["False"], ["True"]], said[0][1] + said[1][1]
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        assert (one[name] - two[name]).abs().max() < 1e-4
