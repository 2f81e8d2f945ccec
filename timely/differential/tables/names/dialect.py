"""The dialect that texts are read in: that of DuckDB, whose functions stay as they are written.

SQLGlot reads some texts as something else, or leaves parts of them out.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from typing import Any, ClassVar, Final, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError
from sqlglot.parsers.duckdb import DuckDBParser

logging.getLogger("sqlglot").addHandler(logging.NullHandler())  # else its notes on a query go to the stderr of users

E = TypeVar("E", bound=exp.Expr)

_SPECIAL: Final = ("GROUPING", "GROUPING_ID", "UNNEST", "STRUCT_PACK")
"""Functions that have nodes of their own, as they stand at places of their own, or name their arguments."""


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


def _plus(parser: Any) -> exp.Expr:
    """Return ``+ x``, which the parser leaves out: it is a number, as ``- x`` is."""
    value: Any = DuckDBParser.UNARY_PARSERS[TokenType.PLUS](parser)
    return value if value is None or value.is_number else exp.Neg(this=exp.Neg(this=value))


class LatenessClause(exp.Expression, exp.ColumnConstraintKind):
    """How much later than others rows come, by a column."""


class _Written(DuckDB):
    INDEX_OFFSET = 0  # elsewhere the parser has literal numbers count from 0

    def to_json_path(self, path: Any) -> Any:
        return path  # as it is written

    class Parser(DuckDBParser):
        FUNCTIONS: ClassVar = {name: DuckDBParser.FUNCTIONS[name] for name in _SPECIAL}
        FUNCTION_PARSERS: ClassVar = {
            name: DuckDBParser.FUNCTION_PARSERS[name] for name in ("CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST")
        }
        TYPE_CONVERTERS: ClassVar = {
            kind: convert for kind, convert in DuckDBParser.TYPE_CONVERTERS.items() if kind is not exp.DType.TEXT
        }
        CONSTRAINT_PARSERS: ClassVar = {
            **DuckDBParser.CONSTRAINT_PARSERS,
            "LATENESS": lambda parser: parser.expression(LatenessClause(this=parser._parse_bitwise())),
        }
        UNARY_PARSERS: ClassVar = {**DuckDBParser.UNARY_PARSERS, TokenType.PLUS: _plus}
        TYPE_LITERAL_PARSERS: ClassVar = dict.fromkeys(exp.DType, _typed_literal)
        LAMBDAS: ClassVar = {kind: read for kind, read in DuckDBParser.LAMBDAS.items() if kind is not TokenType.ARROW}  # JSON's

        def validate_expression(self, expression: E, args: list[Any] | None = None) -> E:
            try:
                return super().validate_expression(expression, args)
            except ParseError:
                self.raise_error("something is missing here")
                raise

        def _parse_with(self, skip_with_token: bool = False) -> exp.With | None:
            """Read ``WITH MUTUALLY RECURSIVE``, and the limit behind it, as Materialize has them."""
            before = self._index
            if skip_with_token or not self._match(TokenType.WITH) or not self._match_text_seq("MUTUALLY", "RECURSIVE"):
                self._retreat(before)
                return super()._parse_with(skip_with_token)
            rounds, returns = 0, False
            if self._match(TokenType.L_PAREN):
                returns = self._match_text_seq("RETURN")
                limited = (returns or self._match_text_seq("ERROR")) and self._match_text_seq("AT", "RECURSION", "LIMIT")
                number = self._parse_number() if limited else None
                rounds = int(number.name) if number is not None and number.is_int else 0
                if not rounds:
                    self.raise_error("the limit is (ERROR AT RECURSION LIMIT n) or (RETURN AT RECURSION LIMIT n)")
                self._match_r_paren()
            clause = super()._parse_with(skip_with_token=True)
            if clause is not None:
                clause.set("rounds", rounds)
                clause.set("returns", returns)
            return clause

        # no attribute of a dialect refuses what these do; pyproject.toml bounds the version whose private methods they are

        def _parse_between(self, this: exp.Expr | None) -> exp.Between:
            low = self._parse_bitwise()
            if not self._match(TokenType.AND):
                self.raise_error("AND is missing between the two ends")
            return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

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


WRITTEN: Final = _Written()
_EXPONENT: Final = re.compile(r"[0-9_.]*[eE][0-9_]+(?=[+-])")


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text: ``1e6-1`` is a difference, which the tokenizer takes for one number."""
    tokens, cuts = list(WRITTEN.tokenize(text)), [0]
    for token in tokens:
        place = token.start
        while token.token_type == TokenType.NUMBER and place >= cuts[-1] and (match := _EXPONENT.match(text, place)) is not None:
            cuts.append(match.end())
            place = match.end() + 1  # behind the sign
    if len(cuts) == 1:
        return tokens
    spaced = " ".join(text[start:end] for start, end in zip(cuts, [*cuts[1:], len(text)]))
    places = [cut + spaces for spaces, cut in enumerate(cuts[1:])]
    return [_moved(token, bisect_left(places, token.start)) for token in WRITTEN.tokenize(spaced)]


def _moved(token: Token, spaces: int) -> Token:
    place = token.line, token.col - spaces, token.start - spaces, token.end - spaces
    return Token(token.token_type, token.text, *place, token.comments)


def nodes_in(root: exp.Expr) -> list[exp.Expr]:
    """Return the nodes of a tree as they stand, in one call: the parser's own generators take several for each node."""
    nodes: list[exp.Expr] = []
    left = [root]
    while left:
        node = left.pop()
        nodes.append(node)
        inner: list[exp.Expr] = []
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                inner.append(value)
            elif isinstance(value, list):
                inner += [part for part in value if isinstance(part, exp.Expr)]
        left += reversed(inner)
    return nodes


def trees_of(tokens: list[Token], text: str) -> list[exp.Expr | None]:
    """Return the trees of a text: ``EMIT ON WINDOW CLOSE`` stands at its end, before semicolons."""
    end = len(tokens)
    while end and tokens[end - 1].token_type is TokenType.SEMICOLON:
        end -= 1
    if [token.text.upper() for token in tokens[max(end - 4, 0) : end]] == ["EMIT", "ON", "WINDOW", "CLOSE"]:
        trees = WRITTEN.parser().parse(tokens[: end - 4], text)
        if isinstance(trees[-1], exp.Query):
            trees[-1].set("emits", True)
            return trees
    return list(WRITTEN.parser().parse(tokens, text))
