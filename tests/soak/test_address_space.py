"""Graph algorithms in an address space (``ulimit -v``) that is too small for their edges: the same rows as without a limit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems ignore RLIMIT_AS"),
]

RUN = """
import resource, sys
algorithm, megabytes = sys.argv[1], int(sys.argv[2])
if megabytes:
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
from benchmarks.memory_budget import measure
found = measure(algorithm, 5_000_000, None)
print(sum(figures.rows for figures in found), round(sum(figures.total for figures in found), 6))
"""


@pytest.mark.parametrize("algorithm", ["pagerank", "connected_components", "breadth_first_search"])
def test_rows_are_the_same_in_a_small_address_space(algorithm: str) -> None:
    unset = {name: value for name, value in os.environ.items() if name != "TIMELY_MEMORY"}
    free, small = (
        subprocess.run([sys.executable, "-c", RUN, algorithm, megabytes], stdout=subprocess.PIPE, check=True, env=unset).stdout
        for megabytes in ("0", "600")
    )
    assert free == small
