"""The ``timely`` command as somebody would type it, and at its edges.

These are outputs that nobody reads or that cannot be written, and names and programs that are none.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import DEGREES, ROOT, start
from timely.cli import main
from timely.inspect import LivePage

PROGRAM = (
    DEGREES
    + """
import timely

def stuck(scope, edges):
    held = []
    def constructor(capability, info):
        def logic(input, output):
            for cap, batch in input:
                held.append(cap.retain())
        return logic
    return {"nothing": edges.unary(timely.Pipeline, "hoarder", constructor)}

def slow(scope, edges):
    import threading
    return {"nothing": edges.map_batch(lambda batch: threading.Event().wait())}

def rows(scope, edges):
    return {"rows": edges.flat_map(lambda row: [row])}

def two(scope, edges):
    return {"one": edges, "other": edges, "none": None}

def some(scope, edges, rows=2):
    return {"some": edges.map_batch(lambda batch: batch.slice(0, rows))}

def wrong(scope, edges):
    return {"wrong": edges.map_batch(lambda batch: {}["no such column"])}

def interrupted(scope, edges):
    raise KeyboardInterrupt
"""
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])  # the command adds to it, and what others start would look there
    name = f"program_{tmp_path.name.replace('-', '_')}"
    Path("program.py").write_text(PROGRAM)
    for file in (f"{name}.py", "re.py", "a.program.py"):
        Path(file).write_text(PROGRAM)
    Path("needs_more.py").write_text("import needs")
    pq.write_table(pa.table({"src": [1, 1, 2, 3], "dst": [2, 3, 3, 1]}), "edges.parquet")
    return tmp_path / f"{name}.py"


def test_a_program_runs_from_tables_to_tables(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", f"{here}:build", "--input", "edges=edges.parquet", "--output", "degrees=out.parquet"]
    assert main([*command, "--workers", "2"]) == 0
    assert capsys.readouterr().out == "degrees: 3 rows in out.parquet\n"
    table = pa.dataset.dataset("out.parquet").to_table().sort_by("node")
    assert table.to_pydict() == {"node": [1, 2, 3], "degree": [2, 1, 1]}
    assert main(command) == 1
    assert "is there already" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0


@pytest.mark.parametrize("ending", ["csv", "arrow"])
def test_tables_of_other_kinds_are_written_and_read_again(here: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{here}:build", "--input", "edges=edges.parquet", "--output", f"degrees=out.{ending}"]) == 0
    capsys.readouterr()
    table = pa.dataset.dataset(f"out.{ending}", format="csv" if ending == "csv" else "ipc").to_table().sort_by("node")
    assert table.to_pydict() == {"node": [1, 2, 3], "degree": [2, 1, 1]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "{program}:build", "--input", "edge=edges.parquet"], "takes --input edges=FILE; given were: edge"),
        (
            ["run", "{program}:missing"],
            "has no function 'missing' to build a dataflow with; it has build, interrupted, rows, slow, some, stuck, two, wrong",
        ),
        (["run", "nowhere.py:build"], "there is no file 'nowhere.py'"),
        (["run", "not_a_module_at_all:build"], "there is no module 'not_a_module_at_all'"),
        (["run", "{program}:build", "--input", "edges=missing.parquet"], "there is no file or folder 'missing.parquet'"),
        (["run", "{program}:build", "--input", "edges=edges.xls"], "should end in one of .parquet"),
        (["run", "{program}:build", "--input", "edges=edges.parquet", "--output", "other=o.csv"], "not all of ['other']"),
        (["draw", "{program}:build", "--input", "edge=edges.parquet"], "takes --input edges=FILE"),
        (["run", "re.py:build"], "'re.py' cannot be imported: there is another module 're' already"),
        (["run", "a.program.py:build"], "'a.program.py' cannot be imported: give it a name without a dot"),
        (["run", "needs_more.py:build"], "module 'needs_more' needs 'needs', which is not installed"),
        (["run", "{program}:build", *2 * ["--input", "edges=edges.parquet"]], "--input gives edges, edges: give each name once"),
        (
            ["run", "{program}:two", "--input", "edges=edges.parquet", "--output", "one=o.csv", "--output", "other=./o.csv"],
            "outputs 'one' and 'other' would both be written to 'o.csv'",
        ),
        (
            ["run", "{program}:two", "--input", "edges=edges.parquet", "--output", "one=o.csv", "--output", "other=o.csv/p.csv"],
            "output 'other' would be written to 'o.csv/p.csv', inside the folder of output 'one', 'o.csv'",
        ),
        (
            ["run", "{program}:two", "--input", "edges=edges.parquet", "--output", "one=o.csv/p.csv", "--output", "other=o.csv"],
            "output 'one' would be written to 'o.csv/p.csv', inside the folder of output 'other', 'o.csv'",
        ),
        (
            ["run", "{program}:two", "--input", "edges=edges.parquet", "--output", "none=o.csv"],
            "returned None as the output 'none'",
        ),
        (
            ["run", "{program}:wrong", "--input", "edges=edges.parquet", "--output", "wrong=o.csv"],
            "raised KeyError: 'no such column' ... (at {program}:",
        ),
        (["run", "{program}:rows", "--input", "edges=edges.parquet", "--output", "rows=o.csv"], "has Arrow record batches"),
        (
            ["run", "{program}:stuck", "--input", "edges=edges.parquet", "--output", "nothing=o.csv", "--engine", "spark"],
            "give --schema nothing=",
        ),
    ],
)
def test_what_cannot_be_run_is_one_message(
    here: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument.format(program=here) for argument in arguments]) == 1
    error = capsys.readouterr().err
    assert all(part in error for part in message.format(program=here).split(" ... "))
    assert error.startswith("timely: ")
    assert "Traceback" not in error
    assert sorted(path.name for path in Path().iterdir() if path.suffix == ".csv" or "unfinished" in path.name) == []


@pytest.mark.parametrize("workers", [[], ["--processes", "2"]])
def test_a_run_that_keeps_nothing_says_how_to(here: Path, workers: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{here}:two", "--input", "edges=edges.parquet", *workers]) == 0
    shown = capsys.readouterr()
    assert shown.err == "timely: no row was kept: keep them with --output one=FILE --output other=FILE\n"
    table = "src | dst\n----+----\n  1 |   2\n  1 |   3\n  2 |   3\n  3 |   1\n\n"
    assert shown.out == f"one: 4 rows\n{table}other: 4 rows\n{table}"
    assert main(["run", f"{here}:two", "--input", "edges=edges.parquet", "--output", "one=o.csv", *workers]) == 0
    assert capsys.readouterr().err == ""


def test_a_run_that_fails_leaves_what_was_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--input", "edges=edges.parquet", "--overwrite", "--output"]
    assert main(["run", f"{here}:build", *command, "degrees=out.csv/"]) == 0
    before = {path.name: path.read_bytes() for path in Path("out.csv").iterdir()}
    Path("out.csv").rename("kept.csv")
    assert main(["run", f"{here}:rows", *command, "rows=kept.csv"]) == 1
    assert {path.name: path.read_bytes() for path in Path("kept.csv").iterdir()} == before
    capsys.readouterr()


def test_a_file_is_replaced_as_a_folder_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out.csv").write_text("something else")
    command = ["run", f"{here}:build", "--input", "edges=edges.parquet", "--output", "degrees=out.csv"]
    assert main(command) == 1
    assert Path("out.csv").read_text() == "something else"
    assert main([*command[:-1], "degrees=out.csv/", "--overwrite"]) == 0
    assert [path.name for path in Path("out.csv").iterdir()] == ["part-00000.csv"]
    assert main([*command, "--overwrite"]) == 0
    assert Path("out.csv").read_text() == '"node","degree"\n1,2\n2,1\n3,1\n'
    assert [path.name for path in Path().iterdir() if path.name.startswith(".")] == []
    capsys.readouterr()


def test_what_comes_to_be_there_during_a_run_is_not_replaced(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("meanwhile.py").write_text(
        "from pathlib import Path\n"
        "def build(scope, edges):\n"
        "    Path('out.csv').write_text('of somebody else')\n"
        "    return {'first': edges, 'second': edges}\n"
    )
    outputs = ["--output", "first=out.csv", "--output", "second=second.csv"]
    assert main(["run", "meanwhile.py:build", "--input", "edges=edges.parquet", *outputs]) == 1
    assert "output 'first': 'out.csv' is there already; give --overwrite" in capsys.readouterr().err
    assert Path("out.csv").read_text() == "of somebody else"
    assert sorted(path.name for path in Path().iterdir() if ".csv" in path.name) == ["out.csv"]


def test_an_interruption_is_no_traceback(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{here}:interrupted", "--input", "edges=edges.parquet"]) == 130
    assert capsys.readouterr().err == "timely: interrupted\n"


def test_what_a_program_can_do_without_is_not_drawn(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", f"{here}:some"]) == 0
    assert capsys.readouterr().out.count('(["input') == 1


def test_a_program_is_drawn_without_its_inputs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", f"{here}:build"]) == 0
    assert 'n_2["map_batch · count"]' in capsys.readouterr().out
    assert main(["draw", f"{here}:build", "--output", "drawn.svg"]) == 0
    assert Path("drawn.svg").read_text().startswith("<svg")


EXPLAIN = """
import multiprocessing, sys
from timely.cli import main
status = main(sys.argv[1:])
assert multiprocessing.active_children() == []
sys.exit(status)
"""
"""The command in a process of its own, as the threads of a stuck program stay until their process ends."""


@pytest.mark.parametrize(
    ("build", "word"), [("stuck", "'hoarder' (/stuck/hoarder#2"), ("slow", "runs operator 'map_batch' (/slow/map_batch#2")]
)
@pytest.mark.parametrize("workers", [[], ["--workers", "2", "--processes", "2"]])
def test_a_stuck_program_is_explained(here: Path, build: str, word: str, workers: list[str]) -> None:
    command = ["explain", f"{here}:{build}", "--input", "edges=edges.parquet", *workers, "--patience"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for patience in ("2", "10", "60"):  # a busy machine may take longer than the first to begin
        program = [sys.executable, "-P", "-c", EXPLAIN, *command, patience]
        done = subprocess.run(program, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (1, "")
        if word in done.stdout:
            break
    assert word in done.stdout
    assert "program_" in done.stdout  # the file in which the operator was built


@pytest.mark.parametrize("workers", [[], ["--workers", "2", "--processes", "2"]])
def test_a_program_that_ends_has_nothing_to_explain(here: Path, workers: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{here}:build", "--input", "edges=edges.parquet", *workers]) == 0
    assert "came to its end" in capsys.readouterr().out


def test_a_program_that_fails_fails_when_it_is_explained(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{here}:wrong", "--input", "edges=edges.parquet"]) == 1
    assert "no such column" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "expected"),
    [([], None), (["--schema", "rows=node long, at timestamp"], ["node: int64", "at: timestamp[us, tz=UTC]"])],
)
def test_an_output_without_rows_has_the_columns_that_are_declared(
    here: Path, columns: list[str], expected: list[str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", f"{here}:rows", "--input", "edges=none.parquet", "--output", "rows=out.parquet/", "--workers", "2"]
    pq.write_table(pa.table({"src": pa.array([], pa.int64())}), "none.parquet")
    assert main([*command, *columns]) == 0
    assert "rows: 0 rows in out.parquet" in capsys.readouterr().out
    assert [path.name for path in Path("out.parquet").iterdir()] == ([] if expected is None else ["part-00000.parquet"])
    if expected is not None:
        table = pq.read_table("out.parquet")
        assert [f"{field.name}: {field.type}" for field in table.schema] == expected
        assert table.num_rows == 0


def test_the_columns_of_an_output_without_rows_are_those_of_the_program(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"src": pa.array([], pa.int64()), "dst": pa.array([], pa.int64())}), "none.parquet")
    for ending in ("csv", "arrow", "parquet"):
        assert main(["run", f"{here}:build", "--input", "edges=none.parquet", "--output", f"degrees=out.{ending}"]) == 0
    capsys.readouterr()
    assert Path("out.csv").read_text() == '"node","degree"\n'
    assert pq.read_table("out.parquet").schema.names == ["node", "degree"]
    assert pa.ipc.open_file("out.arrow").read_all().schema.names == ["node", "degree"]


def test_an_output_has_the_declared_columns_in_their_order_and_types(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", f"{here}:build", "--input", "edges=edges.parquet", "--output", "degrees=out.parquet", "--schema"]
    assert main([*command, "degrees=degree int, node double"]) == 0
    capsys.readouterr()
    table = pq.read_table("out.parquet").sort_by("node")
    assert [f"{field.name}: {field.type}" for field in table.schema] == ["degree: int32", "node: double"]
    assert table.to_pydict() == {"degree": [2, 1, 1], "node": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("node long, degrees long", "output 'degrees': the batch has no column 'degrees'; it has 'node', 'degree'"),
        ("node long", "output 'degrees': the batch has a column 'degree' that was not declared; declared are 'node'"),
        ("node string, degree long", "output 'degrees': column 'node' is declared string, and the batch has int64"),
        ("node lnog, degree long", "output 'degrees': 'node lnog' is no name and type of a column"),
    ],
)
def test_an_output_that_is_not_as_declared_is_refused(
    here: Path, columns: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", f"{here}:build", "--input", "edges=edges.parquet", "--output", "degrees=out.parquet"]
    assert main([*command, "--schema", f"degrees={columns}"]) == 1
    assert message in capsys.readouterr().err
    assert not Path("out.parquet").exists()


def test_columns_of_types_that_are_not_known_are_written_as_they_come(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", f"{here}:build", "--input", "edges=edges.parquet", "--output", "degrees=out.parquet"]
    assert main([*command, "--schema", "degrees=node array<long>"]) == 0
    capsys.readouterr()
    assert pq.read_table("out.parquet").schema.names == ["node", "degree"]


def test_lines_of_json_are_read_under_both_of_their_endings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in ("json", "jsonl"):
        Path(f"edges.{ending}").write_text('{"src": 1, "dst": 2}\n{"src": 1, "dst": 3}\n')
        command = ["run", f"{here}:build", "--input", f"edges=edges.{ending}", "--output", "degrees=out.csv", "--overwrite"]
        assert main(command) == 0
        assert Path("out.csv").read_text() == '"node","degree"\n1,2\n'
    capsys.readouterr()


def piped(arguments: list[str], data: bytes) -> tuple[int, bytes, bytes]:
    with start(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, error = process.communicate(data)
    return process.returncode, out, error


def test_a_table_comes_from_the_standard_input_and_goes_to_the_standard_output(here: Path) -> None:
    command = ["run", f"{here}:build", "--input", "edges=-", "--output", "degrees=-"]
    result = piped(command, b"src,dst\n1,2\n1,3\n")
    assert result == (0, b'"node","degree"\n1,2\n', b"degrees: 1 rows in -\n")
    status, out, _ = piped([*command[:-1], "degrees=-.json"], b"src,dst\n1,2\n")
    assert (status, out) == (0, b'{"node": 1, "degree": 1}\n')
    assert piped([*command, "--input", "more=-"], b"")[0] == 1


def test_rows_have_the_times_of_a_column(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("days.csv").write_text("src,dst,day\n1,2,7\n1,3,5\n2,3,7\n")
    for time in ("day", "edges=day"):
        assert main(["run", f"{here}:some", "--input", "edges=days.csv", "--time", time]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[1:4] == [
            "time | src | dst | day",
            "-----+-----+-----+----",
            "   5 |   1 |   3 |   5",
        ]
    assert main(["run", f"{here}:some", "--input", "edges=days.csv", "--time", "edge=day"]) == 1
    assert "--time names edge, and the inputs are edges" in capsys.readouterr().err
    assert main(["run", f"{here}:some", "--input", "edges=days.csv", "--time", "dya"]) == 1
    assert "'dya' is not in ['src', 'dst', 'day']" in capsys.readouterr().err


@pytest.mark.parametrize("column", ["day", "at"])
def test_rows_have_the_times_of_a_column_of_dates(here: Path, column: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["src,dst,day,at,zoned", "1,2,2024-01-07,2024-01-07 10:00:00,2024-01-07 10:00:00Z"]
    Path("days.csv").write_text("\n".join([*lines, "1,3,1969-12-05,1969-12-05 10:00:01,1969-12-05 10:00:01Z", ""]))
    assert main(["run", f"{here}:some", "--input", "edges=days.csv", "--time", column]) == 0
    head, _, first, second = (line.split(" | ") for line in capsys.readouterr().out.splitlines()[1:5])
    assert head[:2] == [f"{'time':<{len(first[0])}}", "src"]
    assert [row[0].strip() for row in (first, second)] == (
        ["1969-12-05", "2024-01-07"] if column == "day" else ["1969-12-05 10:00:01", "2024-01-07 10:00:00"]
    )
    assert main(["run", f"{here}:some", "--input", "edges=days.csv", "--time", "zoned"]) == 1
    assert "--time edges=zoned: times are whole numbers, dates, or timestamps without a time zone" in capsys.readouterr().err


def test_workers_with_different_columns_make_no_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("differ.py").write_text(
        "import pyarrow as pa\n"
        "def build(scope):\n"
        "    name = f'column{scope.allocator.index}'\n"
        "    return {'rows': scope.to_stream([pa.record_batch({name: [1]})]).map_batch(lambda batch: batch[0])}\n"
    )
    command = ["run", "differ.py", "--output", "rows=out.parquet"]
    assert main([*command, "--workers", "2"]) == 1
    assert "workers sent different columns, column0 int64 and column1 int64" in capsys.readouterr().err
    assert not Path("out.parquet").exists()
    assert main(command) == 0


LOOPS = {
    "/build/loop#0/feedback#0": "with scope.iterative('loop') as loop",
    "/build/feedback#0": "for loop in [scope]",
}


@pytest.mark.parametrize("path", LOOPS)
def test_stream_3_a_loop_without_an_exit_is_explained(here: Path, path: str) -> None:
    Path("endless.py").write_text(
        "def build(scope):\n"
        f"    {LOOPS[path]}:\n"
        "        handle, again = loop.feedback()\n"
        "        numbers = scope.to_stream([1])\n"
        "        (numbers if loop is scope else numbers.enter(loop)).concat(again).connect_loop(handle)\n"
        "    return {}\n"
    )
    status, out, error = piped(["explain", "endless.py", "--patience", "1"], b"")
    assert (status, error) == (1, b"")
    assert out.startswith(b"the loop /build/loop#0 has gone from round " if "loop#0" in path else b"the loop in /build has gone")
    assert b"If it is to end, have each round send fewer records to connect_loop" in out
    assert f"They go round by 'feedback' ({path}, built at endless.py:3 in build)".encode() in out


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["run", "p:b", "--worker", "2", "--inptu", "a=b"], "unrecognized arguments: --inptu a=b; did you mean --input?"),
        (["rnu"], "; did you mean run?"),
        (["serve", "--encoding", "latn-1"], "is not a name of an encoding, such as latin-1"),
        (["run", "p:b", "--engine", "sparkk"], "; did you mean spark?"),
        (["demo", "--quite-different"], "unrecognized arguments: --quite-different\n"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(arguments: list[str], suggestion: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert suggestion in capsys.readouterr().err


def test_a_run_that_is_stuck_says_why(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{here}:stuck", "--input", "edges=edges.parquet", "--output", "nothing=o.csv"]) == 1
    assert "'hoarder' (/stuck/hoarder#2, built at program_" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (1, 2)])
def test_a_run_can_be_watched(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, workers: int, processes: int
) -> None:
    shown: list[dict[str, Any]] = []

    close = LivePage.close

    def closing(page: LivePage) -> None:
        shown.append(page.state())
        close(page)

    monkeypatch.setattr(LivePage, "close", closing)
    command = ["run", f"{here}:build", "--input", "edges=edges.parquet", "--output", "degrees=out.parquet", "--live"]
    assert main([*command, "--workers", str(workers), "--processes", str(processes)]) == 0
    assert capsys.readouterr().out.startswith("to be seen at http://127.0.0.1:")
    [[run]] = [state["runs"] for state in shown]
    assert [(worker["worker"], worker["over"]) for worker in run["workers"]] == [(n, True) for n in range(workers * processes)]
    assert [dataflow["path"] for dataflow in run["dataflows"]] == ["/build"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_script_leaves_a_report_and_a_trace_also_if_it_fails(here: Path, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["timely"])
    lines = [
        "import timely",
        "with timely.Worker() as worker:",
        "    with worker.dataflow(name='df') as scope:",
        f"        scope.to_stream([1]).map(lambda x: 1 // {int(not fails)}).probe()",
        "    worker.run()",
    ]
    Path("script.py").write_text("\n".join(lines))
    with pytest.raises(SystemExit) if fails else contextlib.nullcontext():
        assert main(["live", "--report", "report.html", "--trace", "trace.json", "script.py"]) == 0
    assert "/df/map#1" in Path("report.html").read_text(encoding="utf-8")
    assert any(event["name"] == "map#1" for event in json.loads(Path("trace.json").read_text()))
    assert main(["live", "--report", "no/report.html", "script.py"]) == 1


def test_a_script_runs_with_a_live_page(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["timely"])
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "token")  # the script knows the address beforehand
    lines = [
        "import sys, timely, urllib.request",
        "worker = timely.Worker()",
        "with worker.dataflow(name='df') as scope:",
        "    numbers, _ = scope.new_input()",
        "print(sys.argv[1:], urllib.request.urlopen(sys.argv[1] + 'state.json').read().count(b'/df/input#0') > 0)",
        "numbers.close()",
        "worker.run()",
    ]
    Path("script.py").write_text("\n".join(lines))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    url = f"http://127.0.0.1:{port}/token/"
    assert main(["live", "--port", port, "script.py", url, "--flag"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"to be seen at {url}", f"['{url}', '--flag'] True"]
    Path("script.py").write_text("open('not there')")
    with pytest.raises(SystemExit):
        main(["live", "script.py"])
    assert 'script.py", line 1, in <module>' in capsys.readouterr().err
    assert main(["live", "nothing.py"]) == 1
    assert "there is no script 'nothing.py'" in capsys.readouterr().err


ROWS = """
OUTPUTS = {"joined": "node long, left long, right long", "counts": "node long, n long"}

def build(scope, edges):
    pairs = edges.flat_map(lambda row: [row])
    counts = pairs.aggregate(lambda key, value, n: (n or 0) + 1, lambda key, n: {"n": n, "node": key})
    return {"joined": pairs.join(pairs), "counts": counts}
"""


def test_results_of_operators_are_rows_of_the_declared_columns(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("joins.py").write_text(ROWS)
    outputs = ["--output", "joined=joined.parquet", "--output", "counts=counts.jsonl"]
    assert main(["run", "joins.py", "--input", "edges=edges.parquet", *outputs, "--workers", "2"]) == 0
    assert "joined: 6 rows in joined.parquet" in capsys.readouterr().out
    table = pq.read_table("joined.parquet").to_pylist()
    assert sorted(tuple(row.values()) for row in table) == [(1, 2, 2), (1, 2, 3), (1, 3, 2), (1, 3, 3), (2, 3, 3), (3, 1, 1)]
    lines = sorted(Path("counts.jsonl").read_text().splitlines())
    assert lines == ['{"node": 1, "n": 2}', '{"node": 2, "n": 1}', '{"node": 3, "n": 1}']


def test_an_input_of_different_files_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a missing column would be read as missing values."""
    Path("edges.csv").mkdir()
    Path("edges.csv/a.csv").write_text("src,dst\n1,2\n")
    Path("edges.csv/b.csv").write_text("src,to\n1,3\n")
    assert main(["run", f"{here}:build", "--input", "edges=edges.csv", "--output", "degrees=out.csv"]) == 1
    assert "input 'edges': 'edges.csv/b.csv' has no column 'dst'; it has 'src', 'to'" in capsys.readouterr().err
    assert not Path("out.csv").exists()


needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")


def typed(arguments: list[str], stdout: int, **environment: str) -> tuple[int, str]:
    """Run the command as a process of its own; return its status, and what it said on the standard error."""
    with start(*arguments, stdout=stdout, stderr=subprocess.PIPE, environment=environment) as process:
        _, error = process.communicate()
    return process.returncode, error.decode()


# -- the standard output -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(["draw", "{program}"], ""), (["draw", "{program}"], "1"), (["--help"], "")],
)
def test_a_reader_who_has_gone_away_is_no_error(here: Path, arguments: list[str], unbuffered: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        message = typed([argument.format(program=here) for argument in arguments], writes, PYTHONUNBUFFERED=unbuffered)
    finally:
        os.close(writes)
    assert message == (141, "")


@needs_full
@pytest.mark.parametrize("arguments", [["draw", "{program}"], ["--help"]])
def test_an_output_that_cannot_be_written_is_one_message(here: Path, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        message = typed([argument.format(program=here) for argument in arguments], full.fileno(), PYTHONUNBUFFERED="")
    assert message == (1, "timely: the output cannot be written: [Errno 28] No space left on device\n")


def test_a_name_that_the_terminal_cannot_show_is_shown_in_other_words(here: Path) -> None:
    Path("né.py").write_text("def né(scope): return {}", encoding="utf-8")
    with open("out", "wb") as out:
        assert typed(["draw", "né.py:né"], out.fileno(), PYTHONIOENCODING="ascii") == (0, "")
    assert r'subgraph n["n\xe9 (time: int)"]' in Path("out").read_text()


def test_an_address_is_printed_at_once_also_to_another_command(here: Path) -> None:
    Path("waits.py").write_text("input()")
    unbuffered = {"PYTHONUNBUFFERED": ""}
    with start("live", "waits.py", stdin=subprocess.PIPE, stdout=subprocess.PIPE, environment=unbuffered) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1000)  # which waits for ever, if it comes with the end
        assert first.startswith(b"to be seen at http://127.0.0.1:")
        process.communicate(b"\n", timeout=600)
    assert process.returncode == 0


# -- programs and inputs that are none -----------------------------------------------------------------------------------

WRONG = {
    "def build(scope:": "cannot be read as Python: '(' was never closed (wrong_",
    "def build(): pass": "cannot be called with a scope, and its inputs by name (too many positional arguments): begin it as",
    "def build(scope, edges, /): pass": "cannot be called with a scope, and its inputs by name (missing a required",
    "OUTPUTS = 5\ndef build(scope): pass": "has OUTPUTS = 5: let it be a dictionary",
    "OUTPUTS = {'one': 5}\ndef build(scope): pass": "has OUTPUTS = {'one': 5}: let it be a dictionary",
    "build = max": "has 'build', which does not say what it takes",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_program_that_is_none_is_one_message(here: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = f"wrong_{list(WRONG).index(text)}_{here.name}"
    Path(wrong).write_text(text)
    for command in ("draw", "run"):
        assert main([command, wrong]) == 1
        printed = capsys.readouterr().err
        assert printed.startswith("timely: ")
        assert WRONG[text] in printed
        assert "Traceback" not in printed


@pytest.mark.parametrize("name", ["", ":", ":build", ".beside:build", "..above:build", "a..b"])
def test_a_name_that_is_none_is_one_message(here: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", name]) == 1
    assert "timely: there is no module" in capsys.readouterr().err


def test_outputs_whose_names_are_no_strings_are_named_all_the_same(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(f"numbers_{here.name}").write_text("def build(scope): return {1: scope.to_stream([1])}")
    assert main(["run", f"numbers_{here.name}", "--output", "one=o.csv"]) == 1
    assert "returned the outputs 1, but not all of ['one']" in capsys.readouterr().err


def test_a_dataflow_is_called_what_its_function_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = []
    for program in (str(here), f"{here.name}:build"):
        assert main(["draw", program]) == 0
        drawn.append(capsys.readouterr().out)
    assert drawn[0] == drawn[1] and "build" in drawn[0]


def test_an_input_that_cannot_be_read_is_no_fault_of_a_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.csv").touch()
    for arguments in (["edges=empty.csv"], ["edges=edges.parquet", "--output", "one=/dev/full/o.csv"]):
        assert main(["run", f"{here}:two", "--input", *arguments]) == 1
        assert "(at " not in capsys.readouterr().err


# -- outputs -------------------------------------------------------------------------------------------------------------


def hidden() -> list[str]:
    return [path.name for path in Path().iterdir() if path.name.startswith(".")]


def test_a_link_to_a_folder_is_replaced_and_what_it_leads_to_is_left(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.csv").mkdir()
    Path("other.csv/kept").touch()
    Path("link.csv").symlink_to("other.csv")
    for _ in range(2):
        assert main(["run", f"{here}:two", "--input", "edges=edges.parquet", "--output", "one=link.csv", "--overwrite"]) == 0
    assert not Path("link.csv").is_symlink()
    assert Path("link.csv").is_file()
    assert [path.name for path in Path("other.csv").iterdir()] == ["kept"]
    assert hidden() == []


def test_a_link_to_nowhere_is_something_that_is_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("link.csv").symlink_to("nowhere")
    command = ["run", f"{here}:two", "--input", "edges=edges.parquet", "--output", "one=link.csv"]
    assert main(command) == 1
    assert "'link.csv' is there already; give --overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    assert hidden() == []


def test_what_was_there_is_there_again_where_it_cannot_be_replaced(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out.csv").write_text("before")

    def fails(self: Path, target: Path) -> Path:
        raise PermissionError("not today")

    monkeypatch.setattr(Path, "replace", fails)
    assert main(["run", f"{here}:two", "--input", "edges=edges.parquet", "--output", "one=out.csv", "--overwrite"]) == 1
    assert Path("out.csv").read_text() == "before"
    assert hidden() == []


def test_an_output_that_would_be_packed_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{here}:two", "--input", "edges=edges.parquet", "--output", "one=out.csv.gz"]) == 1
    assert "'out.csv.gz' should end in one of .parquet, .csv, .json, .jsonl, .arrow" in capsys.readouterr().err


def test_names_that_are_no_utf_8_are_one_message(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = os.fsdecode(b"\xff.csv")
    for arguments in ([f"edges={odd}", "--output", "one=o.csv"], ["edges=edges.parquet", "--output", f"one={odd}"]):
        assert main(["run", f"{here}:two", "--input", *arguments]) == 1
        assert "is no UTF-8, which Arrow needs: rename it" in capsys.readouterr().err


# -- inputs made by strangers --------------------------------------------------------------------------------------------

DEEP = 100_000


@pytest.mark.parametrize("line", ['{"a":' + "[" * DEEP + "]" * DEEP + "}", '{"a":' * DEEP + "1" + "}" * DEEP, "[" * DEEP])
def test_deep_json_is_refused_and_leaves_nothing(here: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Arrow's parser ends the process that reads it."""
    Path("edges.jsonl").write_text('{"a": 1}\n' + line + "\n")
    before = set(Path().iterdir())
    assert main(["run", f"{here}:two", "--input", "edges=edges.jsonl", "--output", "one=out.jsonl"]) == 1
    assert "nested more than 100 deep" in (printed := capsys.readouterr().err) and "edges.jsonl" in printed
    assert set(Path().iterdir()) - before <= {Path("__pycache__")}


def test_control_characters_of_data_do_not_reach_the_terminal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("edges.csv").write_text(
        "src,d\x1b[2Jst\n1,2\n" + "1,2\n" * 400_000 + "1,\x1b]0;title\x07\x9b2J\u202e\n", encoding="utf-8"
    )
    assert main(["run", f"{here}:two", "--input", "edges=edges.csv", "--output", "one=out.csv"]) == 1
    printed = capsys.readouterr()
    assert r"\x1b]0;title\x07\x9b2J\u202e" in printed.err
    assert not {each for each in printed.out + printed.err if each != "\n" and not each.isprintable()}
