"""What mypy --strict says of users' programs: nothing of right ones, and of wrong ones what is wrong, in the line where it is."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "types" / "programs"
Errors = dict[tuple[str, int], list[str]]


@pytest.fixture(scope="module")
def errors() -> Errors:
    """Return the codes of the errors that mypy finds in the programs, by file and line."""
    options = ["--strict", "--no-error-summary", "--hide-error-context", "--python-executable", sys.executable]
    programs = sorted(map(str, PROGRAMS.glob("*.py")))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        report, trouble, _ = api.run([*options, *programs])
    assert not trouble, trouble
    errors: Errors = {}
    for line in report.splitlines():
        match = re.fullmatch(r"(.+?):(\d+): error: .*\[([a-z-]+)\]", line)
        if match is not None:
            errors.setdefault((Path(match[1]).name, int(match[2])), []).append(match[3])
    return errors


def test_the_types_of_the_tutorial_pass(tmp_path: Path) -> None:
    """The program itself is run with all others of the documents (``tests/test_docs.py``)."""
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    section = text.partition("## Type checking\n")[2].partition("\n## ")[0]
    program = tmp_path / "program.py"
    program.write_text(section.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    assert "unary" in program.read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        report, trouble, status = api.run(["--strict", "--python-executable", sys.executable, str(program)])
    assert status == 0, report + trouble


def lines(name: str) -> Iterator[tuple[int, str]]:
    return enumerate((PROGRAMS / name).read_text(encoding="utf-8").splitlines(), start=1)


def test_right_programs_pass(errors: Errors) -> None:
    assert {where: codes for where, codes in errors.items() if where[0] == "right.py"} == {}


def test_the_right_program_runs() -> None:
    results = runpy.run_path(str(PROGRAMS / "right.py"))["results"]
    assert results == [[(0, [("word", 4)])], [(0, [("word", 4)])]]


def test_every_mistake_is_found_where_it_is_and_nothing_else(errors: Errors) -> None:
    marked = [(number, line.partition("# expect: ")[2]) for number, line in lines("wrong.py") if "# expect: " in line]
    expected = {("wrong.py", number): sorted(codes.split()) for number, codes in marked}
    assert len(expected) > 15
    assert {where: sorted(codes) for where, codes in errors.items() if where[0] == "wrong.py"} == expected
