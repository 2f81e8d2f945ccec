"""The dialect that texts are read in: that of DuckDB, where SQLGlot reads what is written as something else."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

logging.getLogger("sqlglot").addHandler(logging.NullHandler())  # else its notes on a query go to the stderr of users

_AS_WRITTEN: Final = ("DATE_TRUNC", "DATETRUNC", "DATE_DIFF", "DATEDIFF", "EPOCH_MS", "MAKE_TIMESTAMP")
"""Functions whose nodes forget whether a unit is a text or a column, or that share one node between all queries."""


def _typed_literal(parser: Any, value: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """Return ``date '...'::t`` as the cast of a date, where the parser takes it for the date of a cast."""
    literal = value
    while not isinstance(literal, exp.Literal):
        literal = literal.this
    if not literal.is_string:
        parser.raise_error(f"{kind.sql(dialect='duckdb')} is followed by a text")
    typed: exp.Expr = parser.expression(exp.Cast(this=literal.copy(), to=kind))
    if literal is value:
        return typed
    literal.replace(typed)
    return value


class _Written(DuckDB):
    class Parser(DuckDBParser):
        FUNCTIONS: ClassVar = {name: build for name, build in DuckDBParser.FUNCTIONS.items() if name not in _AS_WRITTEN}
        TYPE_LITERAL_PARSERS: ClassVar = {**dict.fromkeys(exp.DType, _typed_literal), **DuckDBParser.TYPE_LITERAL_PARSERS}


_WRITTEN: Final = _Written()
_EXPONENT: Final = re.compile(r"[0-9_.]*[eE][0-9_]+(?=[+-])")


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text: ``1e6-1`` is a difference, which the tokenizer takes for one number.

    >>> [token.text for token in tokens_of("1e6-1e3+x")]
    ['1e6', '-', '1e3', '+', 'x']
    """
    tokens, cuts = list(_WRITTEN.tokenize(text)), [0]
    for token in tokens:
        place = token.start
        while token.token_type == TokenType.NUMBER and place >= cuts[-1] and (match := _EXPONENT.match(text, place)) is not None:
            cuts.append(match.end())
            place = match.end() + 1  # behind the sign
    if len(cuts) == 1:
        return tokens
    spaced = " ".join(text[start:end] for start, end in zip(cuts, [*cuts[1:], len(text)]))
    places = [cut + spaces for spaces, cut in enumerate(cuts[1:])]
    return [_moved(token, bisect_left(places, token.start)) for token in _WRITTEN.tokenize(spaced)]


def _moved(token: Token, spaces: int) -> Token:
    place = token.line, token.col - spaces, token.start - spaces, token.end - spaces
    return Token(token.token_type, token.text, *place, token.comments)


def trees_of(tokens: list[Token], text: str) -> list[exp.Expr | None]:
    """Return the trees of a text."""
    return list(_WRITTEN.parser().parse(tokens, text))
