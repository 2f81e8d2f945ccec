"""``python -m tests.install``: the wheel and the source distribution, installed where nothing else is, and tried.

For each Python from 3.11 to 3.15 that this machine has, or for those that ``--python`` names, with and without the extras, in an
environment of its own. The source is also installed as ``pip install`` does it: compiled, where there is a compiler. Prints what
worked, with the table of :mod:`tests.spark_versions`. Ends with a status of 1 if anything failed, or if a Python that was asked
for is not there. Not part of the default tests: it downloads what the extras need.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests import spark_versions

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
EXTRAS = ("", "arrow", "connect", "spark,otel")

CORE = """
import subprocess, sys, pathlib
import timely
heavy = {"numpy", "pyarrow", "pandas", "pyspark", "opentelemetry", "mypy", "http.server"} & set(sys.modules)
assert not heavy, heavy
home = pathlib.Path(timely.__file__).parent
assert (home / "py.typed").exists() and (home / "dataflow" / "methods.pyi").exists() and (home / "inspect" / "live.js").exists()
assert not str(home).startswith(sys.argv[1]), home
assert timely.example(lambda scope: scope.to_stream([1, 2]).map(lambda x: 2 * x)) == [(0, [2, 4])]
seen = timely.execute(lambda worker: worker.all_gather(worker.index), workers=2, processes=2)
assert seen == [[0, 1, 2, 3]] * 4, seen
command = pathlib.Path(sys.executable).parent / "timely"
version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
assert version.split() == ["timely", timely.__version__], version
"""

COMPILED = """
import timely
assert timely.compiled == (sys.argv[2] == "True"), timely.compiled
"""

ARROW = """
import pyarrow as pa
edges = pa.record_batch({"src": [1, 1, 2], "dst": [2, 3, 3]})
def build(scope):
    handle, stream = scope.new_input()
    handle.send_batch(edges)
    return stream.group_by("src", degree="count").map(tuple)
assert timely.example(build) == [(0, [(1, 2), (2, 1)])]
"""

CONNECT = """
import timely.spark
from pyspark.sql.connect.session import SparkSession
"""

SPARK = """
import timely.spark, timely.graphs.spark, timely.inspect.otel
session = timely.spark.local_session(workers=2)
edges = session.createDataFrame([("egg", "hen"), ("hen", "egg"), ("hen", "farm")], "src string, dst string")
found = timely.graphs.spark.strongly_connected_components(edges, src="src", dst="dst", workers=2).collect()
session.stop()
assert sorted(map(tuple, found)) == [("egg", "egg"), ("farm", "farm"), ("hen", "egg")], found
"""


PROGRAMS = {"connect": CONNECT, "spark": SPARK}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if everything that could be tried worked."""
    parser = argparse.ArgumentParser(prog="python -m tests.install", description=__doc__)
    parser.add_argument(
        "--python", action="append", metavar="3.X or PATH", help="only this one, by its version or where it is; may be repeated"
    )
    chosen = parser.parse_args(arguments)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        built = _build(Path(folder))
        for version in chosen.python or PYTHONS:
            python = find(version)
            if python is None:
                failed |= chosen.python is not None
                print(f"Python {version}: not on this machine", flush=True)
                continue
            for distribution in built:
                for extras in EXTRAS:
                    problem = _try(Path(folder), python, distribution, extras)
                    failed |= problem is not None
                    name = f"{distribution.suffix.removeprefix('.')}{f' with {extras}' if extras else ''}"
                    print(f"Python {version}, {name}: {'works' if problem is None else problem}", flush=True)
            begun = time.monotonic()
            problem = _try(Path(folder), python, built[-1], "", compile="auto")
            failed |= problem is not None
            print(f"Python {version}, by default, {time.monotonic() - begun:.0f} s: {problem or 'works'}", flush=True)
    return int(failed) | spark_versions.main(spark_versions.VERSIONS)


def find(version: str) -> str | None:
    """Return where a Python of this version is; None where it is not on the path, nor where pyenv puts it.

    What has a slash in it is where one is, not a version.
    """
    if os.sep in version:
        return version if os.access(version, os.X_OK) else None
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = next(map(str, sorted(root.glob(f"{version}.*/bin/python3"))), None)
    return installed or shutil.which(f"python{version}")


def _build(folder: Path) -> list[Path]:
    """Build the source distribution, and the wheel from it."""
    environment = folder / "build"
    python = _environment(sys.executable, environment)
    _run([python, "-m", "pip", "install", "-q", "build"])
    _run([python, "-m", "build", "-o", str(folder / "dist"), str(ROOT)])
    return [next((folder / "dist").glob("*.whl")), next((folder / "dist").glob("*.tar.gz"))]


def _try(folder: Path, python: str, distribution: Path, extras: str, compile: str = "0") -> str | None:
    """Install a distribution and try it; return what went wrong."""
    environment = folder / "try"
    try:
        inside = _environment(python, environment)
        _run(
            [inside, "-m", "pip", "install", "-q", f"{distribution}[{extras}]" if extras else str(distribution)], compile=compile
        )
        program = CORE + COMPILED + (ARROW if extras else "") + PROGRAMS.get(extras.partition(",")[0], "")
        _run([inside, "-W", "ignore", "-c", program, str(ROOT), str(compile == "auto" and _can_compile(inside))], cwd=folder)
    except subprocess.CalledProcessError as error:
        return "FAILED: " + " ".join((error.stderr or error.stdout or "").split())[-400:]
    finally:
        shutil.rmtree(environment, ignore_errors=True)
    return None


def _environment(python: str, place: Path) -> str:
    _run([python, "-m", "venv", str(place)])
    return str(place / "bin" / "python")


def _can_compile(python: str) -> bool:
    """Return whether a C compiler and the headers of a Python are there."""
    program = "import os, sysconfig; print(os.path.exists(os.path.join(sysconfig.get_paths()['include'], 'Python.h')))"
    headers = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip() == "True"
    return headers and shutil.which(os.environ.get("CC", "cc")) is not None


def _run(command: Sequence[str], cwd: Path | None = None, compile: str = "0") -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"TIMELY_COMPILE": compile}
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd, env=environment)


if __name__ == "__main__":
    sys.exit(main())
