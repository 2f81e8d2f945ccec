"""Scripts of views: ``create view name as select ...;``, and ``create table name (column type, ...);`` for what comes in."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final

import attrs
import pyarrow as pa
from sqlglot import Token, TokenType, exp

from timely.differential.tables.names.dialect import nodes_in
from timely.differential.tables.names.queries import query_of, statement_of
from timely.differential.tables.names.refusals import refusal, tokens_in
from timely.differential.tables.names.scalar_rules import type_of
from timely.differential.tables.values.kinds import Column, arrow_schema, lower_case
from timely.errors import SqlError, brief

NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
"""What tables and views are called, in lower case."""

_FORMS: Final = (
    "`create view name as select ...;` and `create table name (column type, ...);`,"
    " with `or replace` before `view`, and `drop view name;`, `drop table name;`, with `cascade` at the end"
)


@attrs.frozen
class TableDefinition:
    """A ``create table``: what comes in under ``name`` has these columns."""

    name: str
    schema: pa.Schema


@attrs.frozen
class ViewDefinition:
    """A ``create view``; positions in ``query`` are those of the script."""

    name: str
    query: str
    replace: bool = False


@attrs.frozen
class DropStatement:
    """A ``drop table`` or ``drop view``; ``cascade`` drops what reads it too."""

    name: str
    is_table: bool
    cascade: bool


Statement = TableDefinition | ViewDefinition | DropStatement


def checked_name(name: str) -> str:
    """Return a name in lower case; ``SqlError`` unless it is letters, digits and ``_``."""
    lowered = name.lower()
    if not NAME.fullmatch(lowered):
        raise SqlError(f"{brief(name)} cannot be the name of a table or a view: use letters, digits and _")
    return lowered


def parse_script(text: str) -> list[Statement]:
    """Return the tables and views that a script defines or drops, in order; ``SqlError`` for other statements.

    >>> [statement.name for statement in parse_script("create view a as select 1 as n; create view b as select n from a")]
    ['a', 'b']
    >>> parse_script("drop view a cascade")
    [DropStatement(name='a', is_table=False, cascade=True)]
    """
    parts = groupby(tokens_in(text), lambda token: token.token_type is TokenType.SEMICOLON)
    return [_statement(list(tokens), text) for ends, tokens in parts if not ends]


def tables_read(query: str) -> frozenset[str]:
    """Return the names that may be tables in a query; ``SqlError``, with the position, for what is not one query.

    >>> sorted(tables_read("with a as (select * from b) select * from a join C using (x)"))
    ['a', 'b', 'c']
    """
    return frozenset(lower_case(node.name) for node in nodes_in(query_of(query)) if isinstance(node, exp.Table))


def _placed(text: str, begin: int, end: int) -> str:
    """Return a part of a text behind as many blanks, so that positions stay."""
    return re.sub(r"[^\n]", " ", text[:begin]) + text[begin:end]


def _statement(statement: list[Token], text: str) -> Statement:
    first, last = statement[0], statement[-1]
    kinds = [token.token_type for token in statement]
    replace = kinds[1:3] == [TokenType.OR, TokenType.REPLACE]
    rest = statement[3:] if replace else statement[1:]
    kinds = kinds[:1] + [token.token_type for token in rest]
    if kinds[:2] == [TokenType.CREATE, TokenType.VIEW] and kinds[3:4] == [TokenType.ALIAS] and len(kinds) > 4:
        query = _placed(text, rest[3].start, last.end + 1)
        tables_read(query)  # which says what is wrong in the query, and where
        return ViewDefinition(checked_name(rest[1].text), query, replace)
    if kinds[:2] == [TokenType.CREATE, TokenType.TABLE] and not replace:
        return _table(statement_of(_placed(text, first.start, last.end + 1)), first.line)
    if kinds[0] == TokenType.DROP and kinds[1:2] in ([TokenType.VIEW], [TokenType.TABLE]):
        options = [token.text.lower() for token in rest[2:]]
        if len(rest) > 1 and options in ([], ["cascade"]):
            return DropStatement(checked_name(rest[1].text), kinds[1] == TokenType.TABLE, bool(options))
    raise SqlError(f"{brief(first.text)} at line {first.line}: a script has {_FORMS}")


def _table(tree: exp.Expr, line: int) -> TableDefinition:
    schema = tree.this
    others = [name for name, value in tree.args.items() if value not in (None, False, []) and name not in ("this", "kind")]
    if not isinstance(tree, exp.Create) or not isinstance(schema, exp.Schema) or others or schema.this.args.get("db"):
        raise SqlError(f"CREATE TABLE at line {line}: write `create table name (column type, ...)`")
    return TableDefinition(checked_name(schema.this.name), pa.schema([_field(column) for column in schema.expressions]))


def _field(column: exp.Expr) -> pa.Field:
    if not isinstance(column, exp.ColumnDef) or column.kind is None:
        raise refusal(column, "a table is declared by its columns, each with a type; keys and checks are not kept")
    constraints = column.args.get("constraints") or []
    for constraint in constraints:
        if not isinstance(constraint.kind, exp.NotNullColumnConstraint) or constraint.kind.args.get("allow_null"):
            raise refusal(column, "of constraints only NOT NULL is kept")
    of_type = type_of(column.kind, column)
    field = arrow_schema((Column(lower_case(column.name), of_type.kind, not constraints),)).field(0)
    return field if of_type.digits is None else field.with_type(pa.decimal128(of_type.digits, of_type.kind.scale))
