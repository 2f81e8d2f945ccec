"""Scripts of views: ``create view name as select ...;``, ``create table name (column type, ...);``, and sources and sinks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import groupby
from typing import Final, NamedTuple

import attrs
import pyarrow as pa
from sqlglot import Token, TokenType, exp

from timely.differential.tables.names.dialect import LatenessClause, nodes_in
from timely.differential.tables.names.from_items import no_table, table_in
from timely.differential.tables.names.queries import query_of, statement_of
from timely.differential.tables.names.reader import is_now
from timely.differential.tables.names.refusals import refusal, tokens_in
from timely.differential.tables.names.scalar_rules import type_of
from timely.differential.tables.values.kinds import Column, Kind, arrow_schema, lower_case
from timely.errors import SqlError, brief, did_you_mean

NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
"""What tables and views are called, in lower case."""

_FORMS: Final = {
    "view": "`create view name as select ...;`",
    "table": "`create table name (column type, ...);`",
    "source": "`create source name (column type, ...) with (option = value, ...);`",
    "sink": "`create sink name from view with (option = value, ...);`",
    "drop": "`drop view name;`",
}

LATENESS: Final = b"timely.lateness"
"""Under which a field of a schema says how late rows come by its column."""

APPEND_ONLY: Final = b"timely.append_only"
"""What a schema says of a table whose rows are never taken away."""

_DROPPED: Final = (["view"], ["table"], ["source"], ["sink"])


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


class EnvironmentVariable(NamedTuple):
    """``env('NAME')``: the value of an option is in the environment."""

    name: str


@attrs.frozen
class ConnectorDefinition:
    """A ``create source``: its connector changes ``tables``; or a ``create sink``: its connector gets the rows of ``view``."""

    kind: str
    name: str
    tables: tuple[TableDefinition, ...]
    view: str
    options: Mapping[str, str | EnvironmentVariable]
    text: str


@attrs.frozen
class DropStatement:
    """A ``drop`` of a table, view, source or sink, the ``kind``; ``cascade`` drops what reads it too."""

    name: str
    kind: str
    cascade: bool


def is_append_only(schema: pa.Schema) -> bool:
    """Return whether rows of a table of this schema are never taken away."""
    return APPEND_ONLY in (schema.metadata or {})


Statement = TableDefinition | ViewDefinition | ConnectorDefinition | DropStatement


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
    [DropStatement(name='a', kind='view', cascade=True)]
    """
    parts = groupby(tokens_in(text), lambda token: token.token_type is TokenType.SEMICOLON)
    return [_statement(list(tokens), text) for ends, tokens in parts if not ends]


def tables_read(query: str, known: Collection[str] | None = None) -> frozenset[str]:
    """Return the names that may be tables in a query; ``SqlError``, with the position, for what is not one query.

    If the ``known`` tables are given, another one that the query does not define is an error too.

    >>> sorted(tables_read("with a as (select * from b) select * from a join C using (x)"))
    ['a', 'b', 'c']
    >>> sorted(tables_read("from hop(clicks, at, interval 1 minute, interval 1 hour)"))
    ['clicks']
    """
    tree = nodes_in(query_of(query))
    read = {table_in(node): node for node in reversed(tree) if isinstance(node, exp.Table)}
    own = {lower_case(node.alias) for node in tree if isinstance(node, exp.CTE)}
    if known is not None:
        for name, node in reversed(read.items()):
            if name and name not in own and name not in known and not node.args.get("db"):
                raise SqlError(str(no_table(node, name, known)))
    return frozenset(read) | {"now" for node in tree if is_now(node)}


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
    words = [token.text.lower() for token in rest]
    if kinds[:2] == [TokenType.CREATE, TokenType.TABLE] and not replace:
        return _table(first, rest, text)
    if kinds[0] == TokenType.DROP and words[:1] in _DROPPED and len(words) > 1 and words[2:] in ([], ["cascade"]):
        return DropStatement(checked_name(rest[1].text), words[0], len(words) > 2)
    if kinds[0] == TokenType.CREATE and words[:1] in (["source"], ["sink"]) and not replace:
        return _connector(first, rest, text)
    forms = [form for kind, form in _FORMS.items() if kind in (first.text.lower(), *words[:1])]
    meant = did_you_mean(first.text.lower(), ("create", "drop"))
    raise SqlError(f"{brief(first.text)} at line {first.line}: a script has {', '.join(forms or _FORMS.values())}{meant}")


def _table(first: Token, rest: list[Token], text: str) -> TableDefinition:
    """Return the definition of a table: ``rest``, behind ``create``, is a word, its name and columns, and maybe APPEND ONLY."""
    grows = [token.text.lower() for token in rest[-2:]] == ["append", "only"]
    declared = rest[1:-2] if grows else rest[1:]
    create = f"{_placed(text, first.start, rest[0].start)}table "  # so that positions stay
    columns = _placed(text, declared[0].start, declared[-1].end + 1) if declared else ""
    tree = statement_of(create + columns[len(create) :])
    schema = tree.this
    others = [name for name, value in tree.args.items() if value not in (None, False, []) and name not in ("this", "kind")]
    if not isinstance(tree, exp.Create) or not isinstance(schema, exp.Schema) or others or schema.this.args.get("db"):
        raise SqlError(f"CREATE TABLE at line {rest[0].line}: write `create table name (column type, ...)`")
    fields = pa.schema([_field(column) for column in schema.expressions], {APPEND_ONLY: b""} if grows else None)
    return TableDefinition(checked_name(schema.this.name), fields)


def _connector(first: Token, rest: list[Token], text: str) -> ConnectorDefinition:
    """Return the definition of a source or sink; ``rest`` follows ``create``."""
    kinds, words = [token.token_type for token in rest], [token.text.lower() for token in rest]
    end = kinds.index(TokenType.WITH) if TokenType.WITH in kinds else len(rest)
    place = f"CREATE {words[0].upper()} at line {first.line}"
    options = _options(rest[end + 1 :], place)
    written = f"create {words[0]} {text[rest[1].start : rest[-1].end + 1]}"  # whatever comment was between
    if words[0] == "sink":
        if end != 4 or words[2] != "from":
            raise SqlError(f"{place}: write `create sink name from view with (option = value, ...)`")
        return ConnectorDefinition("sink", checked_name(words[1]), (), checked_name(words[3]), options, written)
    tables, begin, depth = [], 1, 0
    for last in range(1, end):
        depth += (kinds[last] == TokenType.L_PAREN) - (kinds[last] == TokenType.R_PAREN)
        if not depth and (last == end - 1 or kinds[last + 1] == TokenType.COMMA):
            tables.append(_table(first, [rest[0], *rest[begin : last + 1]], text))
            begin = last + 2
    if not tables or depth:
        raise SqlError(f"{place}: write `create source name (column type, ...) with (option = value, ...)`")
    return ConnectorDefinition("source", tables[0].name, tuple(tables), "", options, written)


def _options(tokens: list[Token], place: str) -> dict[str, str | EnvironmentVariable]:
    """Return the options in ``(name = value, ...)``; ``SqlError`` for anything else, and for a secret that is written there."""
    options: dict[str, str | EnvironmentVariable] = {}
    refused = SqlError(f"{place}: write `with (option = value, ...)`, each option once; a value is a text or env('NAME')")
    if [token.text for token in (*tokens[:1], *tokens[-1:])] != ["(", ")"]:
        raise refused
    parts = groupby(tokens[1:-1], lambda token: token.token_type is TokenType.COMMA)
    for name, *value in [list(part) for comma, part in parts if not comma]:
        option, kinds, words = name.text.lower(), [token.token_type for token in value], [token.text.lower() for token in value]
        if option not in options and kinds == [TokenType.EQ, TokenType.STRING]:
            options[option] = value[1].text
            if _SECRET_NAME.search(option) or _SECRET_VALUE.search(words[1]):
                raise SqlError(f"{place}: {option} has a secret, which logs would show: write {option} = env('NAME')")
        elif option not in options and words[:3] == ["=", "env", "("] and kinds[3:] == [TokenType.STRING, TokenType.R_PAREN]:
            options[option] = EnvironmentVariable(value[3].text)
        else:
            raise refused
    return options


_SECRET_NAME: Final = re.compile(r"password|secret|token|pem$")
_SECRET_VALUE: Final = re.compile(r"password *=|://[^/@]*:[^/@]*@")


def _field(column: exp.Expr) -> pa.Field:
    if not isinstance(column, exp.ColumnDef) or column.kind is None:
        raise refusal(column, "a table is declared by its columns, each with a type; keys and checks are not kept")
    lateness, constraints = None, column.args.get("constraints") or []
    for constraint in constraints:
        if isinstance(constraint.kind, LatenessClause) and lateness is None:
            lateness = _length(constraint.kind)
        elif not isinstance(constraint.kind, exp.NotNullColumnConstraint) or constraint.kind.args.get("allow_null"):
            raise refusal(column, "of constraints only NOT NULL and one LATENESS are kept")
    of_type = type_of(column.kind, column)
    if {Kind.JSON, Kind.UUID} & set(of_type.kind.within):
        raise refusal(column, "tables have no columns of JSON and UUID: declare VARCHAR, and cast it in views")
    field = arrow_schema((Column(lower_case(column.name), of_type.kind, not constraints),)).field(0)
    if lateness is not None:  # its column is never NULL
        field = field.with_metadata({LATENESS: lateness.encode()})
    return field if of_type.digits is None else field.with_type(pa.decimal128(of_type.digits, of_type.kind.scale))


def _length(lateness: LatenessClause) -> str:
    """Return how long a lateness is."""
    length = lateness.this
    if isinstance(length, exp.Literal) and length.is_int:
        return str(length.name)
    if isinstance(length, exp.Interval) and isinstance(length.this, exp.Literal) and isinstance(length.unit, exp.Var | None):
        return f"{length.this.name} {'' if length.unit is None else length.unit.name}".strip()
    raise refusal(lateness, "it is LATENESS INTERVAL '5 minutes', or a whole number")
