"""The scripts of the documents, over the files that stand beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from timely.server import InputWatcher, Views, WatchedInput

DOCS = Path(__file__).resolve().parents[2] / "docs"
GIVEN = re.compile(r"`(\w+\.(?:csv|sql))`:\n\n```(?:csv|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "line", "view", "before", "after"),
    [
        ("csv_to_view.md", "1,ada,", "visits", [("ada", 3), ("bob", 2)], [("ada", 1), ("ada", 1), ("bob", 2)]),
        ("serve.md", "news,", "reached", [("home",), ("news",), ("sports",)], [("home",), ("news",)]),
        ("serve.md", "games,", "lost", [("chess",)], []),
    ],
)
def test_a_script_follows_its_file(
    page: str, line: str, view: str, before: list[tuple[str, ...]], after: list[tuple[str, ...]], tmp_path: Path
) -> None:
    files = dict(GIVEN.findall((DOCS / page).read_text(encoding="utf-8")))
    (script,) = (text for name, text in files.items() if name.endswith(".sql"))
    (name,) = (name for name in files if name.endswith(".csv"))
    path = tmp_path / name
    path.write_text(files[name])
    views = Views()
    watcher = InputWatcher(views, [WatchedInput(path.stem, path)])
    views.run_script(script)

    def held() -> list[tuple[str, ...]]:
        return sorted(row if len(row) == 1 else (row[0], row[-1]) for row, _ in views.read(view).rows)

    assert held() == before
    path.write_text("".join(each for each in files[name].splitlines(keepends=True) if not each.startswith(line)))
    assert [watcher.poll(), watcher.poll()] == [False, True] and watcher.problems == []
    assert held() == after
