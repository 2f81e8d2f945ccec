"""The commands with ``--engine spark``: they find what the local engine finds. They stop the session of their process."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import DEGREES
from tests.cli.debian_components import component_rows, expected_components, printed_circles
from tests.support.spark_programs import SparkPrograms
from timely.cli import main
from timely.cli.debian import KINDS

pytestmark = pytest.mark.spark

COMMAND = """
from timely.cli import main

assert main({arguments!r}) == 0
"""


@pytest.mark.parametrize("kind", ["suggests", pytest.param("all", marks=pytest.mark.soak)])
def test_both_engines_find_the_same_in_the_demo(
    spark_programs: SparkPrograms, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    options = ["--kind", kind, "--output"]
    assert main(["demo", "--engine", "local", *options, str(tmp_path / "local")]) == 0
    source = COMMAND.format(arguments=["demo", "--engine", "spark", *options, str(tmp_path / "spark")])
    ended = spark_programs.run(source, tmp_path)
    assert ended.status == 0, ended.stderr
    assert printed_circles(ended.stdout) == printed_circles(capsys.readouterr().out)
    tables = [component_rows(tmp_path / engine) for engine in ("spark", "local")]
    assert tables[0] == tables[1] == sorted(expected_components(KINDS if kind == "all" else (kind,)).items())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["local", "spark"], "nothing else is left behind"


def test_a_program_runs_where_java_started_in_another_folder(
    spark_programs: SparkPrograms, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (tmp_path / "degrees_on_spark.py").write_text(DEGREES)
    pq.write_table(pa.table({"src": [1, 1, 2, 3], "dst": [2, 3, 3, 1]}), folder / "edges.parquet")
    job = ["run", f"{tmp_path}/degrees_on_spark.py:build", "--input", "edges=edges.parquet", "--output", "degrees=out.parquet"]
    job += ["--engine", "spark", "--live"]
    source = f"import os\n\nos.chdir({str(folder)!r})\n{COMMAND.format(arguments=job)}"
    ended = spark_programs.run(source, tmp_path)
    assert ended.status == 0, ended.stderr
    assert "degrees: 3 rows in out.parquet" in ended.stdout
    assert "to be seen at http://127.0.0.1:" in ended.stdout
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert main(job) == 1
    assert "is there already" in capsys.readouterr().err
