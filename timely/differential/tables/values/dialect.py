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

_AS_WRITTEN: Final = ("ARRAY", "DATE_TRUNC", "DATETRUNC", "DATE_DIFF", "DATEDIFF", "EPOCH_MS", "MAKE_TIMESTAMP")
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


def _if_null(parser: Any) -> exp.Expr:
    """Return ``ifnull(a, b)``, which the parser takes for a ``coalesce`` of any number of values."""
    values = parser._parse_csv(parser._parse_lambda)
    if len(values) != 2:
        parser.raise_error("ifnull takes two values")
    return exp.Coalesce(this=values[0], expressions=values[1:])


def _plus(parser: Any) -> exp.Expr:
    """Return ``+ x``, which the parser leaves out: it is a number, as ``- x`` is."""
    value: exp.Expr = parser._parse_unary()
    return value if value is None or value.is_number else exp.Neg(this=exp.Neg(this=value))


class _Written(DuckDB):
    class Parser(DuckDBParser):
        FUNCTION_PARSERS: ClassVar = {**DuckDBParser.FUNCTION_PARSERS, "IFNULL": _if_null}
        FUNCTIONS: ClassVar = {name: build for name, build in DuckDBParser.FUNCTIONS.items() if name not in _AS_WRITTEN}
        UNARY_PARSERS: ClassVar = {**DuckDBParser.UNARY_PARSERS, TokenType.PLUS: _plus}
        TYPE_LITERAL_PARSERS: ClassVar = {**dict.fromkeys(exp.DType, _typed_literal), **DuckDBParser.TYPE_LITERAL_PARSERS}

        def _parse_between(self, this: exp.Expr | None) -> exp.Between:
            low = self._parse_bitwise()
            if not self._match(TokenType.AND):
                self.raise_error("AND is missing between the two ends")
            value = exp.Paren(this=this) if isinstance(this, exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ) else this
            return self.expression(exp.Between(this=value, low=low, high=self._parse_bitwise()))

        def _parse_star_op(self, *keywords: str) -> list[exp.Expr] | None:
            before = self._index
            parts = super()._parse_star_op(*keywords)
            if not parts and self._index > before:
                self.raise_error(f"names are missing after {keywords[-1]}")
            return parts

        def _parse_string_as_identifier(self) -> exp.Identifier | None:
            named = self._prev is not None and self._prev.token_type in (TokenType.ALIAS, TokenType.L_PAREN, TokenType.COMMA)
            return super()._parse_string_as_identifier() if named else None

        def _parse_join(self, *args: Any, **options: Any) -> exp.Join | None:
            comma = self._curr is not None and self._curr.token_type is TokenType.COMMA
            join = super()._parse_join(*args, **options)
            if join is not None and not comma and not any(value for name, value in join.args.items() if name != "this"):
                self.raise_error("a join needs ON or USING")
            return join


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
