"""The command at its edges: outputs that nobody reads or that cannot be written, names and programs that are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import start
from timely.cli import main

PROGRAM = """
def build(scope, edges):
    return {"edges": edges}

def né(scope):
    return {"one": scope.to_stream([1])}
"""

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    name = f"ends_{tmp_path.name.replace('-', '_')}.py"
    Path(name).write_text(PROGRAM, encoding="utf-8")
    Path("edges.csv").write_text("src,dst\n1,2\n1,3\n")
    return Path(name)


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
    with open("out", "wb") as out:
        assert typed(["draw", f"{here}:né"], out.fileno(), PYTHONIOENCODING="ascii") == (0, "")
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
    wrong = f"wrong_{list(WRONG).index(text)}_{here}"
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
    Path(f"numbers_{here}").write_text("def build(scope): return {1: scope.to_stream([1])}")
    assert main(["run", f"numbers_{here}", "--output", "one=o.csv"]) == 1
    assert "returned the outputs 1, but not all of ['one']" in capsys.readouterr().err


def test_a_dataflow_is_called_what_its_function_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = []
    for program in (str(here.resolve()), f"{here}:build"):
        assert main(["draw", program]) == 0
        drawn.append(capsys.readouterr().out)
    assert drawn[0] == drawn[1] and "build" in drawn[0]


def test_an_input_that_cannot_be_read_is_no_fault_of_a_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.csv").touch()
    for arguments in (["--input", "edges=empty.csv"], ["--input", "edges=edges.csv", "--output", "edges=/dev/full/o.csv"]):
        assert main(["run", str(here), *arguments]) == 1
        assert "(at " not in capsys.readouterr().err


# -- outputs -------------------------------------------------------------------------------------------------------------


def hidden() -> list[str]:
    return [path.name for path in Path().iterdir() if path.name.startswith(".")]


def test_a_link_to_a_folder_is_replaced_and_what_it_leads_to_is_left(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.csv").mkdir()
    Path("other.csv/kept").touch()
    Path("link.csv").symlink_to("other.csv")
    for _ in range(2):
        assert main(["run", str(here), "--input", "edges=edges.csv", "--output", "edges=link.csv", "--overwrite"]) == 0
    assert not Path("link.csv").is_symlink()
    assert Path("link.csv").is_file()
    assert [path.name for path in Path("other.csv").iterdir()] == ["kept"]
    assert hidden() == []


def test_a_link_to_nowhere_is_something_that_is_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("link.csv").symlink_to("nowhere")
    command = ["run", str(here), "--input", "edges=edges.csv", "--output", "edges=link.csv"]
    assert main(command) == 1
    assert "'link.csv' is there already; give --overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    assert hidden() == []


def test_what_was_there_is_there_again_where_it_cannot_be_replaced(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out.csv").write_text("before")

    def fails(self: Path, target: Path) -> Path:
        raise PermissionError("not today")

    monkeypatch.setattr(Path, "replace", fails)
    assert main(["run", str(here), "--input", "edges=edges.csv", "--output", "edges=out.csv", "--overwrite"]) == 1
    assert Path("out.csv").read_text() == "before"
    assert hidden() == []


def test_an_output_that_would_be_packed_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(here), "--input", "edges=edges.csv", "--output", "edges=out.csv.gz"]) == 1
    assert "'out.csv.gz' should end in one of .parquet, .csv, .json, .jsonl, .arrow" in capsys.readouterr().err


def test_names_that_are_no_utf_8_are_one_message(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = os.fsdecode(b"\xff.csv")
    for arguments in ([f"edges={odd}", "--output", "edges=o.csv"], ["edges=edges.csv", "--output", f"edges={odd}"]):
        assert main(["run", str(here), "--input", *arguments]) == 1
        assert "is no UTF-8, which Arrow needs: rename it" in capsys.readouterr().err


# -- inputs made by strangers --------------------------------------------------------------------------------------------

DEEP = 100_000


@pytest.mark.parametrize("line", ['{"a":' + "[" * DEEP + "]" * DEEP + "}", '{"a":' * DEEP + "1" + "}" * DEEP, "[" * DEEP])
def test_deep_json_is_refused_and_leaves_nothing(here: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Arrow's parser ends the process that reads it."""
    Path("edges.jsonl").write_text('{"a": 1}\n' + line + "\n")
    before = set(Path().iterdir())
    assert main(["run", f"{here}:build", "--input", "edges=edges.jsonl", "--output", "edges=out.jsonl"]) == 1
    assert "nested more than 100 deep" in (printed := capsys.readouterr().err) and "edges.jsonl" in printed
    assert set(Path().iterdir()) - before <= {Path("__pycache__")}


def test_control_characters_of_data_do_not_reach_the_terminal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("edges.csv").write_text(
        "src,d\x1b[2Jst\n1,2\n" + "1,2\n" * 400_000 + "1,\x1b]0;title\x07\x9b2J\u202e\n", encoding="utf-8"
    )
    assert main(["run", f"{here}:build", "--input", "edges=edges.csv", "--output", "edges=out.csv"]) == 1
    printed = capsys.readouterr()
    assert r"\x1b]0;title\x07\x9b2J\u202e" in printed.err
    assert not {each for each in printed.out + printed.err if each != "\n" and not each.isprintable()}
