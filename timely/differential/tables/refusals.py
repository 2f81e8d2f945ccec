"""Refusals: errors that name a construct of a query and its position in the text."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, ParamSpec, TypeVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token

from timely.dataflow.origin import origin
from timely.errors import SqlError, brief

_POSITION: Final = "timely_position"


def why_unparsed(error: SqlglotError) -> str:
    """Return what the parser says of a text, without the colours of a terminal."""
    if not isinstance(error, ParseError) or not error.errors:
        return f"the query cannot be parsed: {error}"
    first: Any = error.errors[0]
    shown = str(first.get("highlight") or "")
    column = max(1, int(first.get("col") or 1) - len(shown) + 1)  # sqlglot gives the one of the end
    why = re.sub(r"<Token .*?>", "something else", str(first.get("description") or error))
    why = re.sub(r" for <class .*?>", "", why).rstrip(".")
    return f"{brief(shown)} at line {first.get('line')}, column {column}: the query cannot be parsed: {why}"


def mark_positions(tree: exp.Expr, text: str) -> None:
    """Note in each node of a parsed tree where it stands in the text; copies of the node keep that."""
    tokens = list(Dialect.get_or_raise("duckdb").tokenize(text))
    used: set[int] = set()
    for node in reversed(list(tree.walk(bfs=False))):
        start = _own_start(node, tokens, used)
        below = [child.meta[_POSITION] for child in node.iter_expressions() if _POSITION in child.meta]
        starts = below if start is None else [*below, start]
        if starts:
            node.meta[_POSITION] = min(starts)
    for node in tree.walk(bfs=True):
        if _POSITION not in node.meta and node.parent is not None and _POSITION in node.parent.meta:
            node.meta[_POSITION] = node.parent.meta[_POSITION]
    for node in tree.walk():
        start = node.meta.get(_POSITION)
        if isinstance(start, int):
            line = text.count("\n", 0, start) + 1
            node.meta[_POSITION] = (line, start - text.rfind("\n", 0, start))


def _own_start(node: exp.Expr, tokens: list[Token], used: set[int]) -> int | None:
    start = node.meta.get("start")
    if isinstance(start, int):
        return start
    if isinstance(node, exp.Literal):
        names: Iterable[str] = (str(node.this),)
    elif isinstance(node, exp.Func):
        names = {name.upper() for name in node.sql_names()} | {node.key.upper(), *_SPELLED.get(type(node), ())}
    else:
        names = _SPELLED.get(type(node), (node.key.upper(),))
    for index in range(len(tokens) - 1, -1, -1):  # nodes come last first
        if index not in used and tokens[index].text.upper() in names:
            used.add(index)
            return int(tokens[index].start)
    return None


_SPELLED: Final[dict[Any, tuple[str, ...]]] = {
    exp.CurrentTimestamp: ("NOW", "CURRENT_TIMESTAMP"),
    exp.CurrentDate: ("CURRENT_DATE", "TODAY"),
    exp.Rand: ("RANDOM", "RAND"),
    exp.Placeholder: ("$", "?", ":"),
    exp.Parameter: ("$", "@", "?"),
    exp.Window: ("OVER",),
    exp.GroupConcat: ("STRING_AGG", "LISTAGG", "GROUP_CONCAT"),
    exp.ArrayAgg: ("LIST", "ARRAY_AGG"),
    exp.LogicalAnd: ("BOOL_AND",),
    exp.LogicalOr: ("BOOL_OR",),
    exp.Star: ("*",),
    exp.Group: ("GROUP BY",),
    exp.Order: ("ORDER BY",),
    exp.Tuple: ("(",),
}


def position_of(node: exp.Expr | None) -> str:
    """Return where a node stands, in words, or nothing where that is not known."""
    while node is not None:
        if _POSITION in node.meta:
            line, column = node.meta[_POSITION]
            return f" at line {line}, column {column}"
        node = node.parent
    return ""


def refusal(node: exp.Expr, why: str) -> SqlError:
    """Return the error that refuses ``node``: its text, its position, and the reason."""
    text = node.sql(dialect="duckdb")
    shown = text if len(text) <= 100 else f"{text[:96]} ..."
    return SqlError(f"{shown}{position_of(node)}: {why}")


def no_table(node: exp.Expr, names: Iterable[str]) -> SqlError:
    """Return the error that refuses a table of ``FROM`` that is not there."""
    return refusal(node, f"there is no table {node.name}; there are: {', '.join(sorted(names)) or 'none'}")


def only(node: exp.Expr, *allowed: str) -> None:
    """Raise ``SqlError`` if the node has parts other than ``allowed``: what is not translated is never left out in silence."""
    for name, value in node.args.items():
        if value not in (None, False, []) and name not in allowed:
            raise refusal(node, f"{name.rstrip('_').replace('_', ' ')} of {node.key.upper()} is not supported")


P = ParamSpec("P")
R = TypeVar("R")


def naming_the_line(f: Callable[P, R]) -> Callable[P, R]:
    """Return ``f``, which adds to a ``SqlError`` the line of the program that asked for what is refused."""

    @functools.wraps(f)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return f(*args, **kwargs)
        except SqlError as error:
            at = f"; at {origin()}"
            raise error if str(error).endswith(at) else SqlError(f"{error}{at}") from None

    return named
