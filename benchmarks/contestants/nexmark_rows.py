"""What the contestants of ``benchmarks.nexmark`` are told, and what they tell.

Arguments: a file of epochs, and the number of a query. An epoch has lists of rows by table, moments in them are microseconds.
What is told is a line of JSON: the processor seconds from the first row to the last result, and the rows of that.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Epochs = list[dict[str, list[tuple[Any, ...]]]]

Run = Callable[[], list[Any]]


def main(programs: Mapping[str, Callable[[Epochs], tuple[Run, Run]]]) -> None:
    """Run a program: what is measured of it, and then what returns its rows, which may be the same."""
    path, name = sys.argv[1:]
    measured, answer = programs[name](pickle.loads(Path(path).read_bytes()))
    begun = time.process_time()
    rows = measured()
    seconds = time.process_time() - begun
    print(json.dumps({"seconds": seconds, "rows": rows if answer is measured else answer()}))
