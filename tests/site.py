"""``python -m tests.site``: the site of the documentation, as ``mkdocs build`` has written it to ``site/``, has what it should.

Every public name has an entry of its own kind in the reference, examples are blocks of code, diagrams are drawn, and the search
finds what people look for. Prints what is missing, and ends with a status of 1 if anything is.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import timely

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "site"

SEARCHED = (
    "watermark",
    "late",
    "window",
    "install",
    "jupyter",
    "windows",
    "macos",
    "polars",
    "kafka",
    "flink",
    "networkx",
    "checkpoint",
    "sum_by_key",
    "exactly once",
    "late data",
)
"""Words that people search for: each is in the title of a page or section."""


def packages() -> Iterator[str]:
    """Yield the packages that a program imports from."""
    yield "timely"
    yield "timely.differential.graphs"
    yield "timely.differential.spark"
    yield "timely.graphs.spark"
    for info in pkgutil.iter_modules(timely.__path__, "timely."):
        if info.ispkg and info.name != "timely.cli":
            yield info.name


def entries(site: Path) -> dict[str, str]:
    """Return the kind of each entry of the reference by its name, from the inventory that other sites link by."""
    *_, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    lines = zlib.decompress(packed).decode().splitlines()
    return {name: kind for name, kind, *_ in (line.split(" ", 2) for line in lines)}


def wanted(package: str, name: str) -> tuple[str, str]:
    """Return the kind of the entry that a public name must have, and the name of the entry."""
    value = getattr(importlib.import_module(package), name)
    if isinstance(value, ModuleType):
        return "py:module", value.__name__
    if value is Any or not (inspect.isclass(value) or inspect.isroutine(value)):
        return "py:data", f"{package}.{name}"
    home = f"{value.__module__}.{value.__qualname__}"
    made = "<locals>" in home  # by a decorator
    return "py:class" if inspect.isclass(value) else "py:function", f"{package}.{name}" if made else home


def absent(known: Mapping[str, str]) -> Iterator[str]:
    """Yield the public names that have no entry."""
    for package in packages():
        for name in importlib.import_module(package).__all__:
            kind, entry = wanted(package, name)
            if known.get(entry) != kind:
                yield f"{package}.{name} has no entry in the reference ({kind} {entry})"


def unset(site: Path) -> Iterator[str]:
    """Yield the pages on which examples are no code, or roles of docstrings are left over."""
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        outside = re.sub(r"<(pre|code)\b.*?</\1>", "", text, flags=re.DOTALL)
        for wrong in ("&gt;&gt;&gt;", "<blockquote", ":class:", ":func:", ":meth:", "```"):
            if wrong in outside:
                yield f"{page.relative_to(site)} has {wrong!r} outside of code"


def undrawn(site: Path) -> Iterator[str]:
    """Yield the documents whose diagrams are not drawn on their pages."""
    docs = ROOT / "docs"
    for document in sorted(docs.rglob("*.md")):
        diagrams = document.read_text(encoding="utf-8").count("\n```mermaid\n")
        page = site / document.relative_to(docs).with_suffix("") / "index.html"
        if diagrams and (not page.exists() or page.read_text(encoding="utf-8").count('<pre class="mermaid">') != diagrams):
            yield f"{document.relative_to(ROOT)} has {diagrams} diagrams that are not all drawn"


def unfound(site: Path) -> Iterator[str]:
    """Yield the words that no title has."""
    index = site / "search" / "search_index.json"
    titles = [entry["title"].lower() for entry in json.loads(index.read_text(encoding="utf-8"))["docs"]] if index.exists() else []
    for word in SEARCHED:
        if not any(re.search(rf"\b{word}", title) for title in titles):
            yield f"no title has {word!r}, which people search for"


def main(site: Path = SITE) -> int:
    """Return 0 if nothing is missing."""
    problems = [*absent(entries(site)), *unset(site), *undrawn(site), *unfound(site)]
    for line in problems:
        print(line)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
