"""The guide to testing is true: each program in it prints what stands below it, and what it says of laws is complete.

White box: the list of all laws, which the page must name, is not public.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from timely.progress import refinement, time_domain
from timely.testing import axioms

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)


def run(source: str) -> str:
    """What a program prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(source, {"__name__": "guide"})
    return printed.getvalue()


@pytest.mark.parametrize(("source", "output"), PROGRAM.findall(GUIDE), ids=SECTION.findall(GUIDE))
def test_a_program_in_the_guide_prints_what_stands_below_it(source: str, output: str) -> None:
    assert run(source) == output


def test_every_program_shows_what_it_prints() -> None:
    assert GUIDE.count("```python\n") == len(PROGRAM.findall(GUIDE)) == len(SECTION.findall(GUIDE))


def test_the_operator_of_the_guide_is_right_once_it_asks_for_its_own_time() -> None:
    source, _ = dict(zip(SECTION.findall(GUIDE), PROGRAM.findall(GUIDE)))["An operator"]
    definitions, _, search = source.rpartition("\n\nprint(")
    assert search.startswith("smallest(")
    names: dict[str, object] = {"__name__": "guide"}
    exec(definitions.replace("frontier.less_than(", "frontier.less_equal("), names)
    is_wrong = names["is_wrong"]
    assert callable(is_wrong)
    for numbers in ([], [0], [0, 0], [1, 2, 3]):
        assert not is_wrong((numbers, []))


def test_every_law_is_named_in_the_guide() -> None:
    names = {law.name for law in axioms.order_laws("abc")}
    names |= {law.name for law in axioms.time_laws(time_domain(int))}
    names |= {law.name for law in axioms.summary_laws(time_domain(int))}
    names |= {law.name for law in axioms.refinement_laws(refinement(int, int))}
    assert [name for name in sorted(names) if name not in GUIDE] == []
