"""What the documentation's site has beside the pages in this folder, made when it is built.

The readme as the first page, the changelog and its siblings, a page for each example with its dataflows drawn, and the reference,
from the docstrings. Links out of this folder are led to these pages, or to nowhere where there is none. Used by MkDocs, which
calls the functions here by their names.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]

PAGES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "code_of_conduct.md": "CODE_OF_CONDUCT.md",
}

REFERENCE = (
    "timely.order",
    "timely.memory",
    "timely.progress",
    "timely.scopes",
    "timely.dataflow",
    "timely.operators",
    "timely.operators.results",
    "timely.operators.keyed.windows",
    "timely.files",
    "timely.worker",
    "timely.recovery",
    "timely.connect",
    "timely.differential",
    "timely.differential.graphs",
    "timely.server",
    "timely.graphs",
    "timely.differential.spark",
    "timely.graphs.spark",
    "timely.spark",
    "timely.inspect",
    "timely.testing",
    "timely.testing.differential",
    "timely.testing.random_dataflows",
    "timely.errors",
    "timely",
)
"""The packages of the reference, each after those whose names it has too: what several have is described at the first of them."""

UNDRAWN = frozenset({"exactly_once", "recovery_after_a_kill", "graphs_on_spark", "streaming_components", "what_it_pulls_in"})
"""Examples whose dataflows run in other processes, or are those of queries."""

DRAW = """
import runpy, sys
from pathlib import Path
from timely.inspect import everywhere, picture
from timely.worker.internals import tracers

script, folder = sys.argv[1:]

class Draw:
    count = 0
    def built(self, number, scope):
        drawn = picture(scope).svg()
        if drawn not in known:
            known.append(drawn)
    def __getattr__(self, name):
        return lambda *given: None

known = []
sys.argv = [script]
with everywhere(lambda worker: tracers(worker).append(Draw()) if worker.index == 0 else None):
    runpy.run_path(script, run_name="__main__")
for number, drawn in enumerate(known[:3]):
    Path(folder, f"{number}.svg").write_text(drawn)
"""


MOTION = """
<figure id="motion"><div></div><figcaption></figcaption><button type="button">pause</button></figure>

*A view of SQL with a loop over 282,432 requirements: disk space by section, while packages of Debian come and go.
[The program](examples/what_it_pulls_in.md)*

<script src="img/view.js"></script>
"""
"""What the first page has below its first paragraph: a view in motion."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    made = {page: (ROOT / source).read_text(encoding="utf-8") for page, source in PAGES.items()}
    made |= _reference()
    folders = [ROOT / "examples", *(ROOT / "examples" / name for name in ("timestamps", "differential"))]
    examples = sorted(example for folder in folders for example in folder.glob("*.py"))
    made["examples.md"] = "# Examples\n\nEach is one file, and runs as it is.\n\n" + "".join(
        f"- [{example.stem}](examples/{example.stem}.md): {_summary(example)}\n" for example in examples
    )
    made |= {f"examples/{example.stem}.md": _example(example) for example in examples}
    head, rest = made["index.md"].split("\n\n```python", 1)
    made["index.md"] = f"{head}\n{MOTION}\n```python{rest}"
    chart = ROOT / "timely" / "server" / "page"
    scripts = [chart / "uplot.js", chart / "chart.js", ROOT / "docs" / "img" / "motion.js"]
    view = f"const FRAMES = {json.dumps(_frames())};\n" + "\n".join(script.read_text(encoding="utf-8") for script in scripts)
    files.append(File.generated(config, "img/view.js", content=view))
    files.append(File.generated(config, "img/uplot.css", content=(chart / "uplot.css").read_text(encoding="utf-8")))
    for page, text in made.items():
        files.append(File.generated(config, page, content=_led(text, page) if page in PAGES else text))
    return files


def on_page_markdown(markdown: str, page: Any, **given: Any) -> str:
    """Lead links that leave the folder of the documents to the pages made of what they lead to."""
    return markdown if page.file.src_uri in PAGES else _led(markdown, f"docs/{page.file.src_uri}")


def on_post_page(output: str, **given: Any) -> str:
    """Name the dialog of the search, which the theme leaves without a name."""
    return output.replace('<div class="md-search"', '<div class="md-search" aria-label="Search"')


def _led(text: str, page: str) -> str:
    """Lead the links of a page: ``page`` is where it is in the repository, or on the site for those that are made."""
    home = {source: target for target, source in PAGES.items()}
    up = "../" * (page.removeprefix("docs/").count("/"))

    def lead(found: re.Match[str]) -> str:
        words, target, mark = found.group(1), found.group(2), found.group(3) or ""
        there = (ROOT / page).parent / target if page.startswith("docs/") else ROOT / target
        try:
            place = there.resolve().relative_to(ROOT).as_posix()
        except ValueError:
            return found.group(0)
        if place in home:
            return f"[{words}]({up}{home[place]}{mark})"
        if place.startswith("docs/"):
            return f"[{words}]({up}{place.removeprefix('docs/')}{'/README.md' if there.is_dir() else ''}{mark})"
        if place == "examples" or place.startswith("examples/"):
            name = f"examples/{there.stem}.md" if there.suffix == ".py" else "examples.md"
            return f"[{words}]({up}{name})"
        return words

    text = text.replace('<img src="docs/', f'<img src="{up}')
    return re.sub(r"\[([^\]\n]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)", lead, text)


def _reference() -> dict[str, str]:
    """Return a page for each package of the reference, with an entry or a link for each of its public names."""
    described: dict[str, str] = {}
    pages = {}
    for package in REFERENCE:
        entries, links = [], []
        for name in _public(package):
            path = _defined(package, name)
            if path in REFERENCE:
                links.append(f"- [`{name}`]({path}.md)")
            elif path in described:
                links.append(f"- [`{name}`]({described[path]}.md#{path})")
            else:
                described[path] = package
                entries.append(f"::: {path}\n    options:\n      heading: {name}\n      heading_level: 2\n")
        head = f"::: {package}\n    options:\n      heading: {package}\n      heading_level: 1\n      members: false\n"
        pages[f"reference/{package}.md"] = "\n".join([head, *links, "", *entries])
    pages["reference.md"] = "# Reference\n\n" + "".join(f"- [`{name}`](reference/{name}.md)\n" for name in sorted(REFERENCE))
    return pages


def _module(name: str) -> Path | None:
    """Return the file of a module, where there is such a module."""
    path = ROOT / name.replace(".", "/")
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.exists()), None)


def _tree(module: str) -> ast.Module:
    file = _module(module)
    assert file is not None, module
    return ast.parse(file.read_text(encoding="utf-8"))


def _public(module: str) -> list[str]:
    """Return the public names of a module: those of its ``__all__``, or else those of what it defines."""
    found = []
    for statement in _tree(module).body:
        match statement:
            case ast.Assign(targets=[ast.Name("__all__")], value=value):
                return list(ast.literal_eval(value))
            case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AnnAssign(target=ast.Name(name)):
                found.append(name)
            case ast.Assign(targets=[ast.Name(name)]):
                found.append(name)
    return [name for name in found if not name.startswith("_")]


def _defined(module: str, name: str) -> str:
    """Return the path of what a module has under a name: where it is defined, behind all imports.

    A package's name hides the submodule that is called the same, so imports are followed here and not by mkdocstrings.
    """
    body = _tree(module).body
    for statement in [*body, *(inner for outer in body if isinstance(outer, ast.Try) for inner in outer.body)]:
        match statement:
            case ast.ImportFrom(module=str(source), names=aliases) if source.startswith("timely") and source != module:
                for alias in aliases:
                    if (alias.asname or alias.name) == name:
                        return _defined(source, alias.name)
    return f"{module}.{name}"


def _frames() -> list[Any]:
    """Return the steps of an example, and the rows of its view after each."""
    program = runpy.run_path(str(ROOT / "examples" / "what_it_pulls_in.py"))
    return list(program["steps"](program["debian"]()))


def _summary(example: Path) -> str:
    text = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def _example(example: Path) -> str:
    """Return the page of an example: what it is for, its dataflows, and its source."""
    source = example.read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    body = source.split('"""', 2)[2].strip()
    return f"# {example.stem}\n\n{text}\n\n{_drawn(example)}\n\n```python\n{body}\n```\n"


def _drawn(example: Path) -> str:
    """Return the dataflows that an example builds in its own process, drawn, by running it."""
    if example.stem in UNDRAWN:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", DRAW, str(example), folder]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=600)
        drawings = [path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("*.svg"))]
    return "\n\n".join(f"<figure>{re.sub(chr(10) + chr(10) + '+', chr(10), drawing)}</figure>" for drawing in drawings)
