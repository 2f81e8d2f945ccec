"""``python -m tests.spark_versions [--all | --cluster] [3.5 …]``: tests of Spark on several versions of PySpark, as a table.

Each version is in an environment of its own below the one that runs this, from which it takes all other packages. A version that
is installed there already needs none. Runs a slice, the tests of what differs between versions; all tests of Spark; or those on
clusters. Ends with a status of 1 if any failed. The first run downloads PySpark.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyspark

from tests.support.java_archive import INTERPRETED, QUICK

ROOT: Final = Path(__file__).resolve().parents[1]
VERSIONS: Final = ("3.5", "4.0", "4.1", "4.2", "4.3")

SLICE: Final = {
    "slice": (
        "tests/spark/test_versions.py",
        "tests/spark/test_types.py::test_values_of_every_type_survive",
        "tests/spark/test_run.py::test_several_inputs_and_several_outputs",
        "tests/spark/test_stream.py::test_rows_of_every_type_come_through",
        "tests/spark/test_maintain.py::test_a_view_is_what_spark_makes_of_the_accumulated_data",
        "tests/graphs/graph_frame/test_drop_in.py",
        "tests/graphs/graph_frame/test_pregel_builder.py",
    ),
}
ALL: Final = {
    "timely.spark": ("timely/spark", "tests/spark"),
    "timely.graphs.spark": (
        *("timely/graphs/spark", "timely/graphs/graphframes"),
        *("tests/graphs/test_spark.py", "tests/graphs/graph_frame"),
    ),
    "timely.differential.spark": ("timely/differential/spark", "tests/soak/test_maintain.py"),
}
CLUSTER: Final = {"clusters": ("-m", "cluster", "tests/cluster", "--deselect", "tests/cluster/test_spark_versions.py")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all tests passed on all versions."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark_versions", description=__doc__)
    parser.add_argument("--all", action="store_true", help="all tests of Spark, which takes half an hour for each version")
    parser.add_argument("--cluster", action="store_true", help="the tests on clusters of real processes, which take as long")
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(VERSIONS)}; the lowest and the newest")
    chosen = parser.parse_args(arguments)
    failed = False
    print("| PySpark | suite | tests |\n| --- | --- | --- |", flush=True)
    for version in chosen.versions or (VERSIONS[0], VERSIONS[-1]):
        python = environment(version)
        for suite, files in (CLUSTER if chosen.cluster else ALL if chosen.all else SLICE).items():
            status, counts, output = _test(python, files)
            failed |= status != 0
            print(f"| {version} | {suite} | {counts} |", flush=True)
            if status:
                print(output, file=sys.stderr)
    return int(failed)


def environment(version: str) -> str:
    """Return the Python of an environment with a version of PySpark, which is made where there is none."""
    if pyspark.__version__.startswith(f"{version}."):
        return sys.executable
    place = Path(sys.prefix) / f"pyspark-{version}"
    python = place / "bin" / "python"
    packages = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    if not (packages / "pyspark" / "version.py").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-compile"]
        subprocess.run([*pip, f"pyspark=={version}.*"], check=True)
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")  # comes behind what is installed here
    return str(python)


def _test(python: str, files: Sequence[str]) -> tuple[int, str, str]:
    """Run tests; return the status, how many passed and failed, and what pytest printed."""
    options = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": f"{QUICK} {INTERPRETED}"}
    command = [python, "-m", "pytest", "-q", "-n", "0", "--dist=no", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, env=options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?)\b", done.stdout.splitlines()[-1])
    return done.returncode, ", ".join(counts) or "none", done.stdout


if __name__ == "__main__":
    sys.exit(main())
