"""``python -m tests.prose``: the English of documents, docstrings and messages keeps to the rules of CONTRIBUTING.md.

A sentence has at most 25 words, and the words of the field stand where others were once. Code and tables are not read. Prints
each finding with its file and line, and ends with a status of 1 if there is any. Linters of prose on PyPI either fetch a program
when they run (vale) or have no rule for the length of sentences (proselint).
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
LONGEST: Final = 25
LOOSE: Final = 50
"""The limit of docstrings, and of the pages below: what was written before there was a limit. Take pages out, and add none."""

MESSAGE: Final = 40
"""The limit of messages of errors and warnings, and of the help of the command: what is wrong, and what to do."""

_SAID: Final = re.compile(r"(Error|Warning|Violation|HTTP[A-Za-z]+)$|^(warn|say|print|refusal)$")
"""The functions whose arguments users read."""

_MARKUP: Final = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)

LOOSE_PAGES: Final = frozenset({"CHANGELOG.md"})

TERMS: Final = {
    "onlooker": "tracer",
    "onlookers": "tracers",
    "lookout": "tracer",
    "blueprint": "compiler, plan",
    "excursion": "round-trip summary",
    "mailbag": "batching",
    "errand": "background task",
    "errands": "background tasks",
    "census": "capability holders",
    "attachable": "trusted",
    "hang up": "close the channel",
    "utilize": "use",
    "leverage": "use",
    "simply": "nothing: leave it out",
    "obviously": "nothing: leave it out",
    "in order to": "to",
}
"""Words that the documents once had, or that say nothing, with what to write instead."""

_TERM: Final = re.compile(rf"\b({'|'.join(map(re.escape, TERMS))})\b", re.IGNORECASE)
_SENTENCE: Final = re.compile(r"(?<=[.!?:])[\s\"')]+(?=[A-Z`\[(*])|;\s|\n\s*\n|\f")
_SKIPPED: Final = re.compile(r"^( *```.*?^ *```|<figure.*?</figure>| *\|[^\n]*|#[^\n]*|<[^\n]*>)$", re.MULTILINE | re.DOTALL)


_EXAMPLE: Final = re.compile(r"^ *>>>.*?(?:\n *\n|\Z)|^ {2,}[^\n]*$", re.MULTILINE | re.DOTALL)
"""What runs in a docstring, and lines that are set apart in it."""


class Finding(NamedTuple):
    """What is wrong at a line of a text, counted from 1."""

    line: int
    problem: str


def findings(text: str, longest: int = LONGEST) -> Iterator[Finding]:
    """Yield what is wrong with a text in Markdown."""
    text = _SKIPPED.sub(lambda match: "\f" + "\n" * match[0].count("\n"), text)
    for place, sentence in _sentences(text):
        words = _words(sentence)
        line = text.count("\n", 0, place) + 1
        if len(words) > longest:
            yield Finding(line, f"{len(words)} words in one sentence: {' '.join(words[:8])} ...")
        for term in _TERM.findall(re.sub(r"`[^`]*`", "", sentence)):
            yield Finding(line, f"{term!r}: write {TERMS[term.lower()]}")


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield sentences and items of lists, with where they begin."""
    begun = 0
    for end in re.finditer(rf"{_SENTENCE.pattern}|\n(?=\s*(?:[-*]|\d+\.) )", text):
        yield _at_first_word(text, begun, end.start())
        begun = end.end()
    yield _at_first_word(text, begun, len(text))


def _at_first_word(text: str, begun: int, end: int) -> tuple[int, str]:
    sentence = text[begun:end]
    return begun + len(sentence) - len(sentence.lstrip()), sentence


def _words(sentence: str) -> list[str]:
    """Return the words of a sentence; a piece of code is one, and what a link leads to is none."""
    plain = re.sub(r"``[^`]+``|`[^`]+`", "code", re.sub(r"\]\([^)]*\)", "]", sentence))
    return [word for word in plain.split() if re.search(r"\w", word)]


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module without their examples, with the lines where they begin."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            match node.body[0]:
                case ast.Expr(ast.Constant(str(text)), lineno=line):
                    yield line, _EXAMPLE.sub(lambda match: "\n" * match[0].count("\n"), inspect.cleandoc(text))


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that users read, with their lines; a value in one is a word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            help_of = [each.value for each in node.keywords if each.arg in ("help", "description", "epilog", "text")]
            for argument in [*(node.args if _SAID.search(name) else ()), *help_of]:
                match argument:
                    case ast.Constant(str(text)):
                        yield argument.lineno, text
                    case ast.JoinedStr(values):
                        words = (part.value if isinstance(part, ast.Constant) else "X" for part in values)
                        yield argument.lineno, "".join(map(str, words))


def pages(root: Path) -> Iterator[Path]:
    """Yield the documents that users read."""
    yield from sorted([*root.glob("[RC]*.md"), *(root / "docs").rglob("*.md")])


def main(root: Path = ROOT) -> int:
    """Return 0 if nothing is wrong."""
    problems = []
    for page in pages(root):
        longest = LOOSE if page.relative_to(root).as_posix() in LOOSE_PAGES else LONGEST
        problems += [(page, finding) for finding in findings(page.read_text(encoding="utf-8"), longest)]
    for module in sorted([*(root / "timely").rglob("*.py"), *(root / "tests").rglob("*.py")]):
        for line, text in docstrings(module.read_text(encoding="utf-8")):
            problems += [(module, finding._replace(line=finding.line + line - 1)) for finding in findings(text, LOOSE)]
    for module in sorted((root / "timely").rglob("*.py")):
        for line, text in messages(module.read_text(encoding="utf-8")):
            problems += [(module, finding._replace(line=line)) for finding in findings(text, MESSAGE)]
    for page in sorted((root / "timely").rglob("*.html")):
        shown = _MARKUP.sub(lambda markup: "\f" + "\n" * markup[0].count("\n"), page.read_text(encoding="utf-8"))
        problems += [(page, finding) for finding in findings(shown)]
    for file, finding in problems:
        print(f"{file.relative_to(root)}:{finding.line}: {finding.problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
