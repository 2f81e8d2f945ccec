"""What tests of the ``timely`` command share: a program, and the command as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

DEGREES = """
import pyarrow as pa

OUTPUTS = {"degrees": "node long, degree long"}

def build(scope, edges):
    def count(batch):
        counted = pa.Table.from_batches([batch]).group_by("src").aggregate([("dst", "count")])
        return counted.rename_columns({"src": "node", "dst_count": "degree"}).select(["node", "degree"]).to_batches()[0]
    return {"degrees": edges.exchange("src").map_batch(count)}
"""


def start(*arguments: str, environment: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[bytes]:
    """Start the command as a process of its own."""
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | (environment or {})
    return subprocess.Popen([sys.executable, "-P", "-m", "timely.cli", *arguments], env=variables, **more)
