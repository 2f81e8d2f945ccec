"""The linter of prose finds what it is for, and lets be what is not prose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import prose

LONG = "One " * 26


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Short.\n\n{LONG}end.", [(3, "27 words in one sentence: One One One One One One One One ...")]),
        (f"A line.\n\n```sh\n{LONG}\n```\n\n| {LONG} |\n\n# {LONG}\n", []),
        ("- " + "one " * 15 + "\n- " + "two " * 15, []),
        ("One " * 15 + "two. Three " + "four " * 15, []),
        (f"[{'one ' * 20}](a b c d e f g h.md)", []),
        ("The census, and the `census` of code.", [(1, "'census': write capability holders")]),
    ],
)
def test_what_is_wrong_is_found_and_nothing_else(text: str, expected: list[tuple[int, str]]) -> None:
    assert list(prose.findings(text)) == expected


def test_docstrings_are_read_without_their_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "timely"
    package.mkdir()
    (package / "module.py").write_text(f'def f():\n    """Return it.\n\n    {"one " * 51}\n\n    >>> {"x " * 60}\n    """\n')
    assert prose.main(tmp_path) == 1
    assert capsys.readouterr().out.startswith("timely/module.py:4: 51 words")


def test_messages_are_read_with_a_word_for_each_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "timely"
    package.mkdir()
    source = (
        f'raise GraphError(f"{"one {x} " * 21}")\nparser.add_argument("--a", help="simply a number")\nread("{"one " * 41}")\n'
    )
    (package / "module.py").write_text(source)
    (package / "page.html").write_text(f"<script>{'one ' * 41}</script>\n<p>in order to see</p>")
    assert prose.main(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[:2] for line in lines] == [
        ["timely/module.py", "1"],
        ["timely/module.py", "2"],
        ["timely/page.html", "2"],
    ]
    assert "42 words" in lines[0] and "'simply'" in lines[1] and "'in order to'" in lines[2]


def test_the_list_of_pages_with_long_sentences_only_shrinks() -> None:
    written = {page.relative_to(prose.ROOT).as_posix(): page for page in prose.pages(prose.ROOT)}
    clean = [
        page for page in prose.LOOSE_PAGES if page not in written or not list(prose.findings(written[page].read_text("utf-8")))
    ]
    assert clean == [], "take these pages out of LOOSE_PAGES"
