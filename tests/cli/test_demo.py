"""The ``timely`` command: what the demo finds, with either engine, against SciPy; and what it says when it cannot.

White box: the archive that the demo reads lacks the odd circles, so they are made here.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import timely
from tests.cli.commands import ROOT
from tests.cli.debian_components import component_rows, expected_components
from timely.cli import main
from timely.cli.debian import DATA, packages, requirements
from timely.cli.demo import LISTED, Circle, circles, table


def test_the_components_are_those_that_scipy_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--engine", "local", "--workers", "3", "--kind", "depends", "--top", "3", "--output", str(tmp_path)]
    assert main(["demo", *options]) == 0
    components = expected_components(("depends",))
    assert component_rows(tmp_path) == sorted(components.items())
    printed = capsys.readouterr().out
    assert "\n58 circles of packages that require each other" in printed
    sizes = sorted(((-size, name) for name, size in Counter(components.values()).items()))[:3]
    listed = [line.split() for line in printed.splitlines() if line[:8].strip().replace(",", "").isdigit()]
    assert listed == [[f"{-size:,}", name] for size, name in sizes]
    assert printed.endswith(f"{tmp_path / 'components.parquet'}\n")


def test_a_second_run_replaces_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("suggests", "recommends"):
        assert main(["demo", "--engine", "local", "--kind", kind, "--output", str(tmp_path)]) == 0
    assert component_rows(tmp_path) == sorted(expected_components(("recommends",)).items())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["components.parquet"]


def test_an_output_that_is_a_file_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    assert main(["demo", "--engine", "local", "--output", str(taken)]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("timely: ")
    assert str(taken) in printed.err
    assert printed.out == ""
    assert taken.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["fly"], "usage: timely"),
        (["run", "p:b", "--workers", "0"], "usage: timely"),
        (["run", "p:b", "--input", "edges"], "usage: timely"),
        (["demo", "--workers", "0"], "'0' is not a whole number of 1 or more"),
        (["demo", "--workers", "two"], "'two' is not a whole number"),
        (["demo", "--top", "-1"], "'-1' is not a whole number"),
        (["demo", "--engine", "hadoop"], "hadoop"),
        (["demo", "--kind", "breaks"], "breaks"),
    ],
)
def test_arguments_that_cannot_be_are_a_status_of_2(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"timely {timely.__version__}\n"


WITHOUT = """
import sys

sys.modules[{missing!r}] = None  # as if it were not installed

from timely.cli import main

sys.exit(main(["demo", "--engine", {engine!r}, "--output", "out"]))
"""


@pytest.mark.parametrize(
    ("engine", "missing", "advice"),
    [
        ("spark", "pyspark", 'pip install "timely-dataflow[spark]", or run timely demo --engine local'),
        ("local", "pyarrow", 'pip install "timely-dataflow[arrow]"'),
        ("local", "numpy", 'pip install "timely-dataflow[arrow]"'),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(engine: str, missing: str, advice: str, tmp_path: Path) -> None:
    program = WITHOUT.format(missing=missing, engine=engine)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("timely: ")
    assert advice in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_data_are_what_their_readme_says() -> None:
    names, requires = set(packages()["package"].to_pylist()), requirements()
    unknown = set(requires["requires"].to_pylist()) - names
    counts = [len(names), requires.num_rows, *Counter(requires["kind"].to_pylist()).values(), len(unknown)]
    readme = DATA.with_name("README.md").read_text(encoding="utf-8")
    assert [count for count in counts if f"{count:,}" not in readme] == []
    assert all(packages()["description"].to_pylist())
    assert {"gpgv", "gpgv1", "gpgv2"} <= {row["requires"] for row in requires.to_pylist() if row["package"] == "apt"}


# -- what is shown, from components that are known -----------------------------------------------------------------------


def wheel(size: int, name: str = "package") -> Circle:
    """A circle in which each package requires the next, and suggests the first."""
    names = [f"{name}-{place:04}" for place in range(size)]
    edges = [(one, other, "depends") for one, other in itertools.pairwise([*names, names[0]])]
    (result,) = circles(dict.fromkeys(names, names[0]), [*edges, *((other, names[0], "suggests") for other in names)])
    return result


def test_circles_come_by_size_and_their_packages_by_how_many_require_them() -> None:
    members = {package: name for name, packages in {"b": "bc", "x": "xyz", "a": "ad", "e": "e"}.items() for package in packages}
    result = circles(members, [("x", "z", "depends"), ("y", "z", "depends"), ("z", "y", "depends"), ("x", "x", "depends")])
    assert [circle.name for circle in result] == ["x", "a", "b"]
    assert result[0].packages == ("z", "y", "x")


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_large_circle_is_listed_in_part_and_no_line_is_wider_than_the_terminal(width: int) -> None:
    large, small = wheel(1234), wheel(LISTED, "small")
    lines = list(table([large, small], {large.packages[1]: "x" * 300}, width))
    assert lines[1] == "   1,234  package-0000"
    assert lines[3].endswith("…") and max(map(len, lines)) == width
    assert lines[2 + LISTED].strip() == f"and {1234 - LISTED:,} more"
    assert len(lines) == 1 + (2 + LISTED) + (1 + LISTED)
