"""Refusals: errors that name a construct of a query and its position in the text."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, ParamSpec, TypeVar

import attrs
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError

from timely.dataflow.origin import origin
from timely.differential.tables.expressions.bound import PlacedError
from timely.differential.tables.names.dialect import WRITTEN, nodes_in, tokens_of, trees_of
from timely.differential.tables.names.hints import of_words
from timely.errors import SqlError, brief

_PLACE: Final = "timely_place"

_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


@attrs.frozen(eq=False)
class _Text:
    """A text and its tokens. What a user wrote begins at ``begin``."""

    text: str
    begin: int
    tokens: list[Token]

    def between(self, start: int, end: int) -> str:
        """Return the text from ``start`` to ``end``, and up to the brackets that belong to those in it, on one line."""
        opened: list[int] = []
        for token in self.tokens:
            if token.start > end and not (opened and opened[-1] >= start):
                break
            if token.token_type in _OPENING:
                opened.append(token.start)
            elif token.token_type in _CLOSING and opened:
                partner = opened.pop()
                if token.start >= start:
                    start, end = min(start, partner), max(end, token.end)
        return " ".join(self.text[start : end + 1].split())


@attrs.frozen(eq=False)
class _Place:
    """Where a node stands in a text: its first character and its last."""

    text: _Text
    start: int
    end: int

    def __deepcopy__(self, memo: object) -> _Place:
        return self  # with each copy of a node

    def __str__(self) -> str:
        text, begin = self.text.text, self.text.begin
        line = text.count("\n", begin, self.start) + 1
        return f" at line {line}, column {self.start - max(text.rfind(chr(10), begin, self.start), begin - 1)}"


def parse(text: str, begin: int = 0) -> list[exp.Expr]:
    """Return the statements of a text, each node of which notes where it stands: counted from ``begin``."""
    tokens: list[Token] = []
    try:
        tokens = tokens_in(text, begin)
        source = _Text(text, begin, tokens)
        _check_brackets(source)
        trees = trees_of(tokens, text)
    except SqlError:
        raise
    except Exception as error:
        raise _unread(error, begin, tokens) from None
    statements = [tree for tree in trees if isinstance(tree, exp.Expr)]
    if tokens and tokens[0].token_type is TokenType.ALIAS:
        raise _unparsed(source, tokens[0], "this is one too many here")
    following: list[Token | None] = [*tokens[1:], None]
    for token, after, third in zip(tokens, following, [*following[1:], None]):
        kind = after.token_type if after is not None else None
        if after is not None and token.token_type in _DROPPED.get(kind, ()):
            raise _unparsed(source, after, "this is one too many here")
        called = after is not None and token.token_type is TokenType.ORDER_BY and after.text.upper() == "ALL"
        if after is not None and called and (kind is not TokenType.ALL or _opens(third)):  # a column, or a call, of this name
            raise _unparsed(source, after, "it would be read as ORDER BY ALL")
        if after is not None and token.token_type is TokenType.INTERVAL and re.search(r"[A-Za-z]\s+[A-Za-z]", after.text):
            raise _unparsed(source, after, "an interval has units, each behind a number: -1 month, and not 1 month ago")
        if kind in _NEED_MORE.get(token.token_type, ()):
            raise _unparsed(source, token, "what belongs after it is missing")
        if token.token_type is TokenType.BYTE_STRING and _UNKNOWN_ESCAPE.search(text, token.start, token.end):
            raise _unparsed(
                source, token, r"a text e'...' has the escapes \b, \f, \n, \r, \t, \' and \\: write others as they are"
            )
    whens = [token for token in tokens if token.token_type is TokenType.WHEN]
    if len(whens) > sum(token.token_type is TokenType.THEN for token in tokens):
        raise _unparsed(source, whens[0], "THEN is missing")
    for tree in statements[:2]:
        _check_aliases(tree, source)
        _mark_positions(tree, source)
    return statements


def tokens_in(text: str, begin: int = 0) -> list[Token]:
    """Return the tokens of a text; ``SqlError`` where a quote or a comment is not closed."""
    try:
        return tokens_of(text)
    except TokenError:
        for quote in ("'", '"', "$$", "*/"):
            with suppress(TokenError):
                tokens = tokens_of(text + quote)
                start = text.rfind("/*") if quote == "*/" else tokens[-1].start
                place = _Place(_Text(text, begin, tokens), start, start)
                raise SqlError(f"{text[start]}{place}: the query cannot be parsed: what this opens is not closed") from None
        raise


def _check_brackets(source: _Text) -> None:
    """Refuse brackets that nothing closes, and what the parser leaves out in them, or takes for a word.

    That is the second colon of ``l[1:2:]``, what stands beside a name in ``{bit 'a': 1}``, and the comma of ``extract(day, d)``.
    """
    opened: list[tuple[Token, list[Token]]] = []  # each bracket with its colons
    no_commas: dict[int, str] = {}  # by the place of the bracket
    maps = {after.start for before, after in pairwise(source.tokens) if before.text.upper() == "MAP"}  # of any keys
    for first, before, token in zip([None, None, *source.tokens], [None, *source.tokens], source.tokens):
        if token.token_type in _OPENING:
            opened.append((token, []))
            if before is not None and before.text.upper() in _NO_COMMAS and not _is_declared(first, before):
                no_commas[token.start] = _NO_COMMAS[before.text.upper()]
        elif token.token_type is TokenType.COMMA and opened and opened[-1][0].start in no_commas:
            raise _unparsed(source, token, no_commas[opened[-1][0].start])
        elif token.token_type in _CLOSING and opened:
            _, colons = opened.pop()
            if token.token_type is TokenType.R_BRACKET and colons[1:2] == [before]:
                raise _unparsed(source, colons[1], "a step is missing behind it")
        elif token.token_type is TokenType.COLON and opened:
            bracket, colons = opened[-1]
            colons.append(token)
            is_field = first is not None and first.token_type in (TokenType.L_BRACE, TokenType.COMMA)
            is_field = is_field and before is not None and before.token_type is not TokenType.NUMBER
            if bracket.token_type is TokenType.L_BRACE and not is_field and bracket.start not in maps:
                raise _unparsed(source, token, "one name stands before it")
    if opened and opened[-1][0].token_type is TokenType.L_PAREN:
        raise _unparsed(source, opened[-1][0], "it is not closed")


def _is_declared(before: Token | None, name: Token) -> bool:
    """Return whether a name before a bracket is that of a table, whose columns are in the bracket."""
    declares = (TokenType.TABLE, TokenType.WITH, TokenType.ALIAS)
    return name.token_type is TokenType.IDENTIFIER or (before is not None and before.token_type in declares)


_UNKNOWN_ESCAPE: Final = re.compile(r"(?<!\\)(\\\\)*\\[^bfnrt'\\]")

_NO_COMMAS: Final = {"EXTRACT": "extract takes a unit FROM a value", "POSITION": "position takes a part IN a text"}

_DROPPED: Final[dict[Any, tuple[TokenType, ...]]] = {
    TokenType.STRING: (TokenType.STRING,),
    TokenType.COMMA: (
        *(TokenType.COMMA, TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.SELECT, TokenType.DISTINCT, TokenType.ALL),
    ),
    TokenType.ALIAS: (TokenType.COMMA, TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.SELECT, TokenType.DISTINCT),
    TokenType.ALL: (TokenType.COMMA,),
    TokenType.BETWEEN: (TokenType.BETWEEN, TokenType.AND),
    TokenType.DESC: (TokenType.ASC,),
    TokenType.L_BRACE: (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER, *_CLOSING),
}
"""What the parser leaves out, or puts together, behind which words: ``SELECT , a``, ``'a' 'b'``, ``a {'b': 1}``."""

_END: Final = (None, TokenType.COMMA, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.SEMICOLON)
_NO_VALUE: Final = (*_END, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.PARTITION_BY, TokenType.HAVING, TokenType.LIMIT)
_NEED_MORE: Final[dict[TokenType, tuple[TokenType | None, ...]]] = {
    TokenType.ALIAS: (*_END, TokenType.NUMBER),
    **dict.fromkeys((TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.PARTITION_BY), _NO_VALUE),
}
"""What cannot follow ``AS`` and ``BY``, which the parser forgets then."""


_RESERVED: Final = frozenset(DuckDB.Generator.RESERVED_KEYWORDS)
_NEED_AS: Final = _RESERVED | {"export_state", "filter", "ignore", "over", "respect", "within"}
"""Words that are no name of a selected column without ``AS``."""


def _check_aliases(tree: exp.Expr, source: _Text) -> None:
    """Raise ``SqlError`` for a word of SQL that is taken for a name, and might be a clause: ``FROM orders GROUP``."""
    before = {token.start: previous for previous, token in pairwise(source.tokens)}
    for node in tree.find_all(exp.Alias, exp.TableAlias):
        for name in (node.args.get("alias"), node.args.get("this"), *(node.args.get("columns") or [])):
            if not isinstance(name, exp.Identifier) or name.quoted:
                continue
            words = _NEED_AS if isinstance(node, exp.Alias) else _RESERVED
            if name.name.lower() not in words and not name.name[:1].isdigit():
                continue
            start = name.meta.get("start", -1)
            if start in before and (isinstance(node, exp.TableAlias) or before[start].token_type is not TokenType.ALIAS):
                place = _Place(source, start, start + len(name.name) - 1)
                raise SqlError(f"{name.name}{place}: this is a word of SQL: as a name it needs double quotes")


def _unparsed(source: _Text, token: Token, why: str) -> SqlError:
    place = _Place(source, token.start, token.end)
    return SqlError(f"{source.text[token.start : token.end + 1]}{place}: the query cannot be parsed: {why}")


def _mark_positions(tree: exp.Expr, source: _Text) -> None:
    """Note in each node of a parsed tree where it stands in the text; copies of the node keep that."""
    tokens = source.tokens
    following = {token.end: after for token, after in pairwise(tokens)}
    calls = {argument.start: name for name, (bracket, argument) in zip(tokens, pairwise(tokens[1:])) if _opens(bracket)}
    unused: dict[str, list[Token]] = {}
    for token in tokens:
        unused.setdefault(token.text.upper(), []).append(token)
    places_in: defaultdict[int, list[_Place]] = defaultdict(list)  # by the identity of the node around
    for node in reversed(nodes_in(tree)):  # what stands last comes first
        places = places_in[id(node)]
        starts, ends = [place.start for place in places], [place.end for place in places]
        meta = node.meta
        own, end = meta.get("start"), meta.get("end", 0)
        spelled = [unused[name] for name in _spelled(node) if unused.get(name)] if own is None else []
        if spelled:
            token = max(spelled, key=lambda left: left[-1].start).pop()
            own, end = token.start, token.end
        if own is not None:
            after = following.get(end)
            belongs = _opens(after) if isinstance(node, exp.Func | exp.Window) else source.text[own] == "$"
            starts.append(own)
            ends.append(after.end if after is not None and belongs else end)
        elif isinstance(node, exp.Func) and starts and min(starts) in calls:
            starts.append(calls[min(starts)].start)
        if starts or node is tree:
            place = _Place(source, min(starts, default=tokens[0].start), max(ends, default=tokens[0].end))
            node.meta[_PLACE] = place
            places_in[id(node.parent)].append(place)


def _opens(token: Token | None) -> bool:
    return token is not None and token.token_type is TokenType.L_PAREN


def _spelled(node: exp.Expr) -> Iterable[str]:
    """Return the words of which one begins what a node is, or stands in it."""
    if isinstance(node, exp.Literal):
        return (str(node.this).upper(),)
    if isinstance(node, exp.Func):
        return {name.upper() for name in node.sql_names()} | {node.key.upper(), *_SPELLED.get(type(node), ())}
    return _SPELLED.get(type(node), (node.key.upper(),))


_SPELLED: Final[dict[Any, tuple[str, ...]]] = {
    exp.CurrentTimestamp: ("NOW", "CURRENT_TIMESTAMP"),
    exp.CurrentDate: ("CURRENT_DATE", "TODAY"),
    exp.Placeholder: ("$", "?", ":"),
    exp.Parameter: ("$", "@", "?"),
    exp.Window: ("OVER",),
    exp.Star: ("*",),
    exp.Group: ("GROUP BY",),
    exp.Order: ("ORDER BY",),
    exp.Tuple: ("(",),
}


def position_of(node: exp.Expr | None) -> str:
    """Return where a node stands, in words, or nothing where that is not known."""
    while node is not None:
        if _PLACE in node.meta:
            return str(node.meta[_PLACE])
        node = node.parent
    return ""


def stands_before(node: exp.Expr, other: exp.Expr) -> bool:
    """Return whether the names and literals of a node stand before those of another in one text."""
    first, second = _first_leaf(node), _first_leaf(other)
    return first is not None and second is not None and first[0] is second[0] and first[1] < second[1]


def _first_leaf(node: exp.Expr) -> tuple[_Text, int] | None:
    """Return where a node's first name or literal stands, which the parser notes itself."""
    leaves = [part.meta for part in node.walk() if "start" in part.meta and _PLACE in part.meta]
    first = min(leaves, key=lambda meta: int(meta["start"]), default=None)
    return None if first is None else (first[_PLACE].text, first["start"])


def written(node: exp.Expr) -> str:
    """Return what a user wrote for a node, shortened."""
    place = node.meta.get(_PLACE)
    text = node.sql(dialect=WRITTEN) if place is None else place.text.between(place.start, place.end)
    return text if len(text) <= 100 else f"{text[:96]} ..."


def in_brackets(node: exp.Expr) -> bool:
    """Return whether a node stands right behind an opening bracket in the text."""
    place = node.meta.get(_PLACE)
    return place is not None and bool(place.text.text[: place.start].rstrip().endswith("("))


def name_of(call: exp.Expr) -> str:
    """Return the name of a function as a user wrote it."""
    name, bracket, _ = written(call).partition("(")
    return name.strip() if bracket and name.strip().isidentifier() else call.key


class RefusedError(SqlError):
    """A construct of a query is refused: its text, its position, and the reason."""


def refusal(node: exp.Expr, why: str) -> SqlError:
    """Return the error that refuses ``node``."""
    return RefusedError(f"{written(node)}{position_of(node)}: {why}")


def placed(error: SqlError, node: exp.Expr) -> SqlError:
    """Return an error as the refusal of what it is about, or of ``node``."""
    if isinstance(error, RefusedError):
        return error
    at = error.at if isinstance(error, PlacedError) else None
    return refusal(at or node, str(error))


def has_place(node: exp.Expr) -> bool:
    """Return whether a node stands in a text."""
    return _PLACE in node.meta


def text_of(node: exp.Expr) -> str:
    """Return an expression as SQL, as columns without a name are called."""
    try:
        return node.sql(dialect=WRITTEN, comments=False)
    except Exception as error:  # of trees that no text has
        raise refusal(node, f"it cannot be written ({type(error).__name__})") from None


P = ParamSpec("P")
R = TypeVar("R")


def naming_the_line(f: Callable[P, R]) -> Callable[P, R]:
    """Return ``f``, whose ``SqlError`` say on which line of the program somebody asked for what is refused."""

    @functools.wraps(f)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return f(*args, **kwargs)
        except SqlError as error:
            at = f"; at {origin()}"
            placed_error = error if str(error).endswith(at) else SqlError(f"{error}{at}")
            for note in _marked(str(error), [*args, *kwargs.values()]):
                if note not in getattr(placed_error, "__notes__", ()):
                    placed_error.add_note(note)
            raise placed_error from None
        except RecursionError:
            raise SqlError(f"the query at line 1, column 1: it is nested too deeply; at {origin()}") from None

    return named


_MESSAGE: Final = re.compile(r"'?(\S+).*? at line (\d+), column (\d+): ", re.DOTALL)


def _marked(message: str, arguments: Iterable[object]) -> Iterator[str]:
    """Yield the line of the query that a message is about, with its place marked below."""
    if place := _MESSAGE.match(message):
        word, line, column = place[1].rstrip("'"), int(place[2]), int(place[3])
        for text in arguments:
            lines = text.split("\n") if isinstance(text, str) else []
            if len(lines) >= line and lines[line - 1][column - 1 :].startswith(word):
                yield f"    {lines[line - 1]}\n    {' ' * (column - 1)}{'^' * len(word)}"
                return


def _why_unparsed(error: ParseError, begin: int, tokens: list[Token]) -> str:
    """Return what the parser says of a text, without the colours of a terminal."""
    first: Any = error.errors[0]
    shown = str(first.get("highlight") or "")
    column = int(first.get("col") or 1) - len(shown) + 1  # sqlglot gives the one of the end
    column = max(1, column - (begin if first.get("line") == 1 else 0))
    why, _, _ = str(first.get("description") or error).rstrip(".").partition(" but got ")
    why = _IN_WORDS.get(why, why)
    ends = [token.end for token in tokens if (token.line, token.col) == (first.get("line"), first.get("col"))]
    hint = of_words(tokens, ends[0]) if ends else ""
    return f"{brief(shown)} at line {first.get('line')}, column {column}: the query cannot be parsed: {why}{hint and '; ' + hint}"


_IN_WORDS: Final = {
    "Invalid expression / Unexpected token": "this does not fit here",
    "Expecting )": ") is missing before it",
    "Expected table name": "FROM has names of tables; files become tables by --input, or by dd.read_table",
}
"""What the parser says, for those who write queries."""


def _unread(error: Exception, begin: int, tokens: list[Token]) -> SqlError:
    """Return the error of a text that the parser does not read: whatever it raises is its own affair."""
    if isinstance(error, ParseError) and error.errors:
        return SqlError(_why_unparsed(error, begin, tokens))
    cause = f"{type(error).__name__}: {brief(str(error))}"
    why = "it is nested too deeply" if isinstance(error, RecursionError) else f"the query cannot be parsed ({cause})"
    return SqlError(f"the query at line 1, column 1: {why}")
