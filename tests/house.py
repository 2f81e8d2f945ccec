"""Figures of the package's structure: ``python -m tests.house [FOLDER]`` prints them, and exits 1 where one is past its target.

Counted by parsing, nothing is imported: lines by package (code, docstring, comment), lines of tests and words of documents.
Listed are definitions whose names the word table replaces, and circles of files, also by imports inside functions and under
``TYPE_CHECKING``. So are public classes defined twice, submodules hidden by a name that their package exports, large folders, and
file names that occur twice. Tests that import what is not public say why. ``tests/test_house.py`` asserts what has reached its
target.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[1]

BUDGETS: Final = {
    "lines of timely/": 87_000,
    "lines of tests/": 76_000,
    "words of docs/": 65_000,
    "Any per 1,000 lines of collections": 45,
}
LARGEST_FOLDER: Final = 25
FIXED_PACKAGES: Final = ("attrs", "sortedcontainers", "typing_extensions")

COINED: Final = frozenset(
    re.findall(
        r"\w+",
        """agenda alike arena attachable attendant bell blueprint board census company council crew deal dealt delegating duty ear
        errand errands excursion hear heard keeper keeping kept lookout mailbag onlooker onlooking relay said say shelf speak
        spoke surroundings sweep taken tell teller told turning""",
    )
)
"""Words that the field has another term for, where they name a module, a class, a function or a method."""


VAGUE: Final = frozenset(("found", "kept", "given", "said"))
"""Names that do not say what a variable holds."""

WHITE_BOX: Final = re.compile(r"\bWhite box: \S.*[^.]\.", re.DOTALL)
"""The sentence in which the docstring of a test file says why it imports from implementation modules."""


@attrs.frozen
class Lines:
    """Lines of a package by what stands on them; the rest is blank."""

    total: int = 0
    code: int = 0
    docstring: int = 0
    comment: int = 0

    def __add__(self, other: Lines) -> Lines:
        return Lines(
            self.total + other.total,
            self.code + other.code,
            self.docstring + other.docstring,
            self.comment + other.comment,
        )


@attrs.frozen
class Module:
    """One file of the package; ``nodes`` are those of its tree."""

    name: str
    path: Path
    source: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @classmethod
    def of(cls, name: str, path: Path, source: str) -> Module:
        """Parse a file."""
        tree = ast.parse(source)
        return cls(name, path, source, tree, tuple(ast.walk(tree)))

    @property
    def package(self) -> str:
        """The package below ``timely`` that it is in, or its own name where it stands at the top."""
        return [*self.name.split("."), ""][1] or "timely"

    def lines(self) -> Lines:
        """Count its lines."""
        docstrings: set[int] = set()
        for node in self.nodes:
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
                text = node.body[0]
                docstrings.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
        comments: set[int] = set()
        code: set[int] = set()
        silent = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type == tokenize.COMMENT:
                comments.add(token.start[0])
            elif token.type not in silent:
                code.update(range(token.start[0], token.end[0] + 1))
        code -= docstrings
        return Lines(len(self.source.splitlines()), len(code), len(docstrings), len(comments - code))


@functools.cache
def modules(root: Path, folder: str = "timely") -> dict[str, Module]:
    """Return every file of a folder below ``root``, by module name."""
    known = {}
    for path in sorted((root / folder).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        known[name] = Module.of(name, path, path.read_text(encoding="utf-8"))
    return known


def imported(module: Module, known: Mapping[str, Module]) -> Iterator[str]:
    """Yield the modules of the package that a file imports from, wherever the import stands."""
    for base, name in imported_names(module.nodes):
        inner = f"{base}.{name}"
        if inner in known or base in known:
            yield inner if inner in known else base


def circles(known: Mapping[str, Module]) -> list[list[str]]:
    """Return the groups of files that import each other. A package that re-exports is not followed into its files."""
    plain = [name for name, module in known.items() if module.path.name != "__init__.py"]
    ahead = {name: {other for other in imported(known[name], known) if other in plain} for name in plain}
    beyond: dict[str, set[str]] = {}
    for name in plain:
        seen: set[str] = set()
        waiting = list(ahead[name])
        while waiting:
            other = waiting.pop()
            if other not in seen:
                seen.add(other)
                waiting.extend(ahead[other])
        beyond[name] = seen
    groups = {tuple(sorted(other for other in beyond[name] if name in beyond[other])) for name in plain if name in beyond[name]}
    return sorted((list(group) for group in groups if len(group) > 1), key=len, reverse=True)


def hidden(known: Mapping[str, Module]) -> list[str]:
    """Return the submodules that have the name of something that their package exports."""
    submodules = []
    for name, module in known.items():
        if module.path.name == "__init__.py":
            exported = {
                alias.asname or alias.name
                for node in module.nodes
                if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{name}.")
                for alias in node.names
            }
            submodules += [f"{name}.{export}" for export in sorted(exported) if f"{name}.{export}" in known]
    return submodules


def doubles(known: Iterable[Module]) -> list[str]:
    """Return the names that several public classes have, each with the modules that define one."""
    classes: dict[str, list[str]] = defaultdict(list)
    for module in known:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(module.name)
    return [f"{name}: {', '.join(at)}" for name, at in sorted(classes.items()) if len(at) > 1]


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield ``(module, name)`` for every import, the name empty for a plain ``import module``."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def documented(root: Path) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the modules of the reference, and what the programs of the documents and the examples import."""
    made_pages = ast.parse((root / "docs" / "made_pages.py").read_text(encoding="utf-8"))
    reference = next(
        set(ast.literal_eval(node.value))
        for node in made_pages.body
        if isinstance(node, ast.Assign) and any(isinstance(name, ast.Name) and name.id == "REFERENCE" for name in node.targets)
    )
    shown = {
        pair
        for path in (root / "examples").rglob("*.py")
        for pair in imported_names(ast.walk(ast.parse(path.read_text("utf-8"))))
    }
    for page in [root / "README.md", *(root / "docs").glob("*.md")]:
        for program in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            shown.update(imported_names(ast.walk(ast.parse(program))))
    return reference, shown


def unexplained_white_boxes(root: Path, known: Mapping[str, Module], tests: Iterable[Module]) -> list[str]:
    """Return the test files that import what is not public from a module of a package, without a sentence that says why.

    Public is what a package exports, what a module of the reference has, and what the programs of the documents import. What a
    package exports is imported from the package, also in a file with such a sentence.
    """
    inner = {name for name, module in known.items() if module.path.name != "__init__.py" and name.count(".") > 1}
    reference, shown = documented(root)
    exported = {
        pair
        for module in known.values()
        if module.path.name == "__init__.py"
        for pair in imported_names(module.nodes)
        if pair[0].startswith(f"{module.name}.") and f'"{pair[1]}"' in module.source.partition("__all__")[2]
    }
    imports = []
    for test in tests:
        explained = WHITE_BOX.search(ast.get_docstring(test.tree) or "")
        for module, name in imported_names(test.nodes):
            at = f"{module}.{name}" if f"{module}.{name}" in inner else module
            if at not in inner or at in reference or (module, name) in shown:
                continue
            if not explained or (module, name) in exported:
                imports.append(f"{test.path.relative_to(root)}: {module} {name}".rstrip())
    return imports


def definitions(module: Module) -> Iterator[str]:
    """Yield the names of what a file defines: the module itself, classes, functions and methods."""
    yield module.name.rsplit(".", 1)[-1]
    yield from (node.name for node in module.nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef))


def words(name: str) -> list[str]:
    """Return the words of an identifier.

    >>> words("_tellAllPeers"), words("keep_alone")
    (['tell', 'all', 'peers'], ['keep', 'alone'])
    """
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().strip("_").split("_")


def coined(known: Iterable[Module]) -> list[str]:
    """Return the definitions that are named by a word that the word table replaces."""
    return sorted(
        {
            f"{module.name}:{name}"
            for module in known
            for name in definitions(module)
            if not name.startswith("__") and COINED.intersection(words(name))
        }
    )


def vague(known: Iterable[Module]) -> list[str]:
    """Return the functions with a parameter or a variable whose name does not say what it holds."""
    functions = set()
    for module in known:
        lines = {node.lineno for node in module.nodes if isinstance(node, ast.arg) and node.arg in VAGUE}
        names = (node for node in module.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        lines |= {node.lineno for node in names if node.id in VAGUE}
        for function in module.nodes if lines else ():
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and lines.intersection(
                range(function.lineno, (function.end_lineno or function.lineno) + 1)
            ):
                functions.add(f"{module.name}:{function.name}")
    return sorted(functions)


def sizes(root: Path, known: Mapping[str, Module]) -> dict[str, int]:
    """Return what ``BUDGETS`` bounds."""
    collections = [module for name, module in known.items() if re.match(r"timely\.differential\b(?!\.(tables|spark))", name)]
    lines = sum(len(module.source.splitlines()) for module in collections)
    untyped = sum(len(re.findall(r"\bAny\b", module.source)) for module in collections)
    return {
        "lines of timely/": sum(len(module.source.splitlines()) for module in known.values()),
        "lines of tests/": sum(len(path.read_text("utf-8").splitlines()) for path in (root / "tests").rglob("*.py")),
        "words of docs/": sum(len(path.read_text("utf-8").split()) for path in (root / "docs").rglob("*.md")),
        "Any per 1,000 lines of collections": 1000 * untyped // lines,
    }


def folders(known: Iterable[Module]) -> list[str]:
    """Return the folders with more than ``LARGEST_FOLDER`` files, the ``__init__`` left out."""
    files = Counter(module.path.parent for module in known if module.path.name != "__init__.py")
    return [f"{folder.name}: {count}" for folder, count in sorted(files.items()) if count > LARGEST_FOLDER]


def repeated_file_names(known: Iterable[Module]) -> list[str]:
    """Return the file names that occur twice, with where."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in known:
        if module.path.name != "__init__.py":
            places[module.path.name].append(module.name)
    return [f"{name}: {', '.join(at)}" for name, at in sorted(places.items()) if len(at) > 1]


def main(root: Path) -> int:
    """Print the figures of a checkout; return how many are past their targets."""
    known, tests = modules(root), modules(root, "tests")
    by_package: dict[str, Lines] = defaultdict(Lines)
    uses: Counter[str] = Counter()
    for module in known.values():
        by_package[module.package] += module.lines()
        uses.update(base.split(".")[0] for base, _ in imported_names(module.nodes))
    past = []
    print(f"{'package':14}{'lines':>8}{'code':>8}{'docstring':>11}{'comment':>9}")
    for package, lines in sorted(by_package.items(), key=lambda entry: -entry[1].total):
        print(f"{package:14}{lines.total:8,}{lines.code:8,}{lines.docstring:11,}{lines.comment:9,}")
    print()
    for title, size in sizes(root, known).items():
        print(f"{title}: {size:,} of {BUDGETS[title]:,}")
        if size > BUDGETS[title]:
            past.append(f"{size:,} {title}")
    figures = {
        "files that import each other": [" ".join(group) for group in circles(known)],
        "submodules hidden by their package": hidden(known),
        "public classes defined twice": doubles(known.values()),
        "imports in tests of what is not public, without a reason": unexplained_white_boxes(root, known, tests.values()),
        "names that the word table replaces": [*coined(known.values()), *coined(tests.values())],
        "functions with a variable that does not say what it holds": [*vague(known.values()), *vague(tests.values())],
        "fixed packages that nothing imports": [name for name in FIXED_PACKAGES if not uses[name] and not uses[name[:4]]],
        f"folders with more than {LARGEST_FOLDER} files": folders(known.values()),
        "file names that occur twice": repeated_file_names(known.values()),
    }
    for title, entries in figures.items():
        print(f"\n{title}: {len(entries)}")
        print("".join(f"  {entry}\n" for entry in entries), end="")
        if entries:
            past.append(f"{len(entries)} {title}")
    print("\n" + ("past a target: " + "; ".join(past) if past else "every figure is at its target"))
    return len(past)


if __name__ == "__main__":
    sys.exit(bool(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)))
