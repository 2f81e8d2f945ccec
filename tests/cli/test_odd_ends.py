"""The command at its edges: outputs that nobody reads or that cannot be written, names and programs that are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

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
    done = subprocess.run(
        [sys.executable, "-m", "timely.cli", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr.decode()


# -- the standard output -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(["draw", "{program}"], ""), (["draw", "{program}"], "1"), (["--help"], ""), (["completion", "bash"], "")],
)
def test_nothing_is_said_of_a_reader_who_has_gone_away(here: Path, arguments: list[str], unbuffered: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        told = typed([argument.format(program=here) for argument in arguments], writes, PYTHONUNBUFFERED=unbuffered)
    finally:
        os.close(writes)
    assert told == (141, "")


@needs_full
@pytest.mark.parametrize("arguments", [["draw", "{program}"], ["--help"]])
def test_an_output_that_cannot_be_written_is_told_in_one_message(here: Path, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        told = typed([argument.format(program=here) for argument in arguments], full.fileno(), PYTHONUNBUFFERED="")
    assert told == (1, "timely: the output cannot be written: [Errno 28] No space left on device\n")


def test_a_name_that_the_terminal_cannot_show_is_shown_in_other_words(here: Path) -> None:
    with open("out", "wb") as out:
        assert typed(["draw", f"{here}:né"], out.fileno(), PYTHONIOENCODING="ascii") == (0, "")
    assert r'subgraph n["n\xe9"]' in Path("out").read_text()


def test_an_address_is_told_at_once_also_to_another_command(here: Path) -> None:
    Path("waits.py").write_text("input()")
    command = [sys.executable, "-m", "timely.cli", "live", "waits.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1000)  # which waits for ever, if it comes with the end
        assert first.startswith(b"to be seen at http://127.0.0.1:")
        process.communicate(b"\n", timeout=60)
    assert process.returncode == 0
