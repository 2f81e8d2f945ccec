"""The documents tell the truth: every name of the code in them exists, every program in them runs, every link leads somewhere."""

from __future__ import annotations

import importlib
import pkgutil
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests import site
from tests.support.script_server import ScriptServer
from tests.support.spark_programs import SparkPrograms

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
FULL = re.compile(r"(?<!spark\.)timely(?:\.\w+)+")  # settings spark.timely.* are checked in tests/spark/test_defaults.py
SHORT = re.compile(r"(?<![\w.])([A-Z]\w+)\.(\w+)\b")
FILE = re.compile(r"(?:tests|docs|examples|benchmarks|timely)/[\w/.-]*\w/?")
GIVEN = re.compile(r"`([\w.]+)`:\n\n```csv\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
TITLE = re.compile(r"^#+ (.*)$", re.MULTILINE)

JAVA_SAYS = re.compile(r"^WARNING: (Using incubator modules: .*|package \S+ not in java\.base)\n", re.MULTILINE)
"""What some versions of Java say about an argument that Spark gives them."""

STRANGERS = frozenset({"DataFrame", "README", "CHANGELOG", "Result"})
"""What stands before a dot in the pages and is no class of the core: ``Result`` is known by its full name."""


def in_code(text: str) -> list[str]:
    """What stands in backticks in a page, outside of its blocks."""
    return CODE.findall(BLOCK.sub("", text))


def resolve(name: str) -> object:
    """The module, class, function or attribute that a dotted name means."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            result: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            result = getattr(result, part)
        return result
    raise AttributeError(f"there is no module {name}")


def classes() -> dict[str, list[type]]:
    """Every class of the core by its name; there may be several of one name."""
    result: defaultdict[str, list[type]] = defaultdict(list)
    for info in pkgutil.walk_packages(timely.__path__, "timely."):
        if info.name.split(".")[1] in ("spark", "graphs", "cli"):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == info.name:
                result[name].append(value)
    return result


def without_earlier_names(text: str) -> str:
    """The text without the first column of each table with the header ``old | new``."""
    table = re.compile(r"^\| old \| new \|\n(?:\|.*\n)+", re.MULTILINE)
    return table.sub(lambda rows: re.sub(r"^\|[^|]*\|", "|", rows[0], flags=re.MULTILINE), text)


def missing(text: str) -> Iterator[str]:
    """The names in a page that the code does not have."""
    known = classes()
    for code in in_code(text):
        for name in FULL.findall(code):
            try:
                resolve(name)
            except AttributeError:
                yield name
        for owner, attribute in SHORT.findall(FULL.sub("", code)):
            if owner not in STRANGERS and not any(hasattr(owned, attribute) for owned in known[owner]):
                yield f"{owner}.{attribute}"
        for path in FILE.findall(code):
            if not (ROOT / path).exists():
                yield path


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_name_in_a_page_is_one_of_the_code(page: Path) -> None:
    assert list(missing(without_earlier_names(page.read_text(encoding="utf-8")))) == []


def anchors(text: str) -> list[str]:
    """The anchors of a page's titles, as GitHub and MkDocs make them."""
    titles = [re.sub(r"\]\([^)]*\)", "", title) for title in TITLE.findall(BLOCK.sub("", text))]
    return [re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles]


def dead_links(page: Path) -> Iterator[str]:
    """The links of a page to files that do not exist, and to titles that their pages lack or have twice."""
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        if not target.exists():
            yield path
        elif anchor and target.suffix == ".md" and anchors(target.read_text(encoding="utf-8")).count(anchor) != 1:
            yield f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_in_a_page_leads_somewhere(page: Path) -> None:
    assert list(dead_links(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](#one) [b](#two) [c](page.md#one) [d](page.md#three) [e](none.md#one)\n", encoding="utf-8")
    assert list(dead_links(page)) == ["#two", "page.md#three", "none.md"]


PROGRAMS = [
    pytest.param(source, id=f"{page_id(page)}-{number}")
    for page in PAGES
    if page.name != "README.md"  # whose programs are run, and their output compared, by test_readme.py
    for number, (language, source) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
    if language == "python"
]

FILES = {
    source: dict(GIVEN.findall(text))
    for page in PAGES
    for text in [page.read_text(encoding="utf-8")]
    for language, source in BLOCK.findall(text)
    if language == "python"
}
"""The files that a page gives to its programs."""


@pytest.mark.parametrize("source", PROGRAMS)
def test_a_program_in_a_page_runs(source: str, tmp_path: Path, scripts: ScriptServer, spark_programs: SparkPrograms) -> None:
    for name, content in FILES[source].items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    ended = (spark_programs if "local_session" in source else scripts).run(source, tmp_path)
    assert (ended.status, JAVA_SAYS.sub("", ended.stderr)) == (0, "")


def test_the_program_of_the_command_counts_over_all_batches_of_an_input() -> None:
    page = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
    [program] = [source for language, source in BLOCK.findall(page) if language == "python"]
    message: dict[str, Any] = {}
    exec(program, message)
    batches = [pa.record_batch({"src": [1, 1, 2], "dst": [n, n, n]}) for n in range(5)]

    def count(worker: timely.Worker) -> list[tuple[int, int]]:
        with worker.dataflow() as scope:
            edges, stream = scope.new_input()
            seen = message["build"](scope, edges=stream)["degrees"].capture()
        for batch in batches[worker.index :: worker.peers]:
            edges.send_batch(batch)
        edges.close()
        worker.run()
        return [row for _, rows in seen.extract() for row in rows]

    one, two = timely.execute(count, workers=2)
    assert sorted(one + two) == [(1, 10), (2, 5)]
    assert message["OUTPUTS"] == {"degrees": "src long, degree long"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`timely.order.Product` and `timely.nothing`, `Worker.step`, `Worker.leap()`", ["timely.nothing", "Worker.leap"]),
        ("`timely.Worker.step`, `timely.worker.worker.Worker.leap`", ["timely.worker.worker.Worker.leap"]),
        ("`tests/test_docs.py`, `tests/test_doctors.py`", ["tests/test_doctors.py"]),
        ("```python\ntimely.nothing\n```\nnot in code: timely.nothing", []),
    ],
)
def test_a_name_that_is_not_there_is_found(text: str, names: list[str]) -> None:
    assert list(missing(text)) == names


def test_what_the_site_lacks_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = ["timely.worker.execute py:module 0 - -", "timely.worker.worker.Worker py:class 1 - -"]
    head = b"# Sphinx inventory version 2\n# Project: timely\n# Version: 0\n# zlib\n"
    (tmp_path / "objects.inv").write_bytes(head + zlib.compress("\n".join(entries).encode()))
    (tmp_path / "good.html").write_text("<pre><code>&gt;&gt;&gt; 1</code></pre>", encoding="utf-8")
    (tmp_path / "bad.html").write_text("<blockquote>&gt;&gt;&gt; 1</blockquote>", encoding="utf-8")
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "search_index.json").write_text('{"docs": [{"title": "Coming from polars"}]}', encoding="utf-8")
    assert site.main(tmp_path) == 1
    printed = capsys.readouterr().out
    assert "timely.execute has no entry in the reference (py:function timely.execution.local_run.execute)" in printed
    assert "timely.Worker " not in printed
    assert "bad.html has '<blockquote' outside of code" in printed
    assert "good.html" not in printed
    assert "docs/architecture.md has 2 diagrams that are not all drawn" in printed
    assert "no title has 'kafka', which people search for" in printed
    assert "no title has 'polars'" not in printed
