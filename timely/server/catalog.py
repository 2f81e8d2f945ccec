"""``Catalog``: the tables and views of a server, as they are defined. A value: each change returns another one.

Invariant: definitions are in an order in which each reads earlier ones only, and every query compiles.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Self

import attrs
import pyarrow as pa

from timely.differential.tables.names.statements import (
    LATENESS,
    ConnectorDefinition,
    DropStatement,
    Statement,
    TableDefinition,
    ViewDefinition,
    checked_name,
    is_append_only,
    parse_script,
    tables_read,
)
from timely.differential.tables.names.user_functions import UserFunction
from timely.differential.tables.operators.time_windows import Lateness
from timely.differential.tables.sources import lateness_of
from timely.differential.tables.values.kinds import Column, arrow_schema, columns_of
from timely.errors import ConfigurationError, OutputError, SqlError, did_you_mean, listed_names
from timely.recovery.relations import RelationGraph, Relations
from timely.server.computation import ReadTable, result_columns, watermark_of

_POSITIONS: Final = pa.schema([pa.field("partition", pa.string(), False), pa.field("position", pa.string(), False)])

Encoded = tuple[list[tuple[str, bytes | None, str, str]], dict[str, str]]
"""A catalog as plain data: names with schemas, queries and marks, and the views of the script."""


NO_KEYS: Final = "has a lateness: rows below its watermark stay, so that a row with their key would be there beside them"


def late_of(table: str) -> str:
    """Return the name of the table of the changes that came too late for another one: its columns, and 1 or -1."""
    return f"{table}_late"


def unknown(name: str, names: Collection[str]) -> str:
    """Return what is wrong with the name of a table or view that is not there."""
    return f"there is no table or view {name}: there are {listed_names(names)}{did_you_mean(name, names)}"


def _text_of(name: str, schema: pa.Schema) -> str:
    """Return the query of a table that clients change, which those beside it have too."""
    lateness = [
        f"{each.name} lateness {each.metadata[LATENESS].decode()}" for each in schema if LATENESS in (each.metadata or {})
    ]
    return f"create table {name} ({', '.join(lateness)})" if lateness else ""


@attrs.frozen
class Definition:
    """A table, which has a schema, or a view, which has a query; blanks around that do not count.

    The tables of a source or sink have its statement as their ``query``, and one mark: nothing else changes them.
    """

    name: str
    columns: tuple[Column, ...]
    schema: pa.Schema | None = None
    query: str = attrs.field(default="", eq=str.strip)
    reads: frozenset[str] = frozenset()
    functions: tuple[tuple[str, UserFunction], ...] = attrs.field(default=(), eq=False)
    """Of the server, which its query may call."""
    made: str = ""  # the mark of a table: one that is dropped and made again has another one

    @property
    def lateness(self) -> Lateness | None:
        """How late the rows of a table come, if it says so."""
        return None if self.schema is None else lateness_of(self.schema, self.name)

    @property
    def as_read(self) -> ReadTable:
        """What queries know of it."""
        place = None if self.lateness is None else self.lateness.place
        return ReadTable(self.columns, self.schema is not None and is_append_only(self.schema), place)

    @property
    def owner(self) -> str:
        """What alone changes a table: a ``source`` or ``sink``, or for what is beside a table with a lateness, a ``table``."""
        return "" if self.schema is None or not self.query or self.query == _text_of(self.name, self.schema) else self.kind

    @property
    def kind(self) -> str:
        """What a script calls it."""
        return "view" if self.schema is None else self.query.split()[1].lower() if self.query else "table"

    @property
    def connector(self) -> ConnectorDefinition:
        """The source or sink that it is of, as its ``kind`` says."""
        [statement] = parse_script(self.query)
        assert isinstance(statement, ConnectorDefinition)
        return statement


@attrs.frozen
class Catalog:
    """Definitions by name, and the text of each view of the script that was applied last.

    >>> catalog = Catalog().with_table("t", pa.schema([("n", pa.int64())])).with_view("v", "select n + 1 as m from t")
    >>> [(each.name, sorted(each.reads)) for each in catalog.definitions.values()]
    [('t', []), ('v', ['t'])]
    >>> catalog.without(["t"], cascade=True).definitions
    {}
    """

    definitions: Mapping[str, Definition] = {}
    script: Mapping[str, str] = {}
    functions: tuple[tuple[str, UserFunction], ...] = attrs.field(default=(), eq=False)
    """Of the server, by name."""

    @property
    def tables(self) -> dict[str, str]:
        """The marks of the tables, by their names."""
        return {name: each.made for name, each in self.definitions.items() if each.schema is not None}

    @property
    def marks(self) -> dict[str, object]:
        """What differs for a table or view that holds other rows than one of the same name did, by their names."""
        return {name: (each.made, each.columns) for name, each in self.definitions.items()}

    def with_table(self, name: str, schema: pa.Schema) -> Self:
        """Add a table; one that is there already with the same columns stays."""
        name = checked_name(name)
        there, columns = self.definitions.get(name), columns_of(schema)
        text, other = _text_of(name, schema), ""
        if there is not None and there.kind == "table" and there.schema is not None:
            grows = is_append_only(there.schema)
            if there.columns == columns and there.query == text and grows == is_append_only(schema):
                return self
            other = ", with another lateness" if there.query != text else f", which is {'' if grows else 'not '}append-only"
            other = ", with other columns" if there.columns != columns else other
        if there is not None:
            raise ConfigurationError(f"there is a table or view {name} already{other}: give another name, or drop it first")
        return self._with_tables({name: schema}, text)

    def _with_tables(self, schemas: Mapping[str, pa.Schema], query: str) -> Self:
        """Add tables, with the late rows and the watermark of each that has a lateness."""
        beside: dict[str, pa.Schema] = {}
        for name, schema in schemas.items():
            lateness = lateness_of(schema, name)
            if lateness is not None:
                fields = [field.remove_metadata() for field in schema]
                beside[late_of(name)] = pa.schema([*fields, pa.field("_change", pa.int64(), False)])
                beside[watermark_of(name)] = pa.schema([fields[lateness.place].with_name("watermark")])
        names = [*schemas, *beside]
        for name in names:
            if name in self.definitions or names.count(name) > 1:
                raise ConfigurationError(f"there is a table or view {name} already: give another name, or drop it first")
        made = secrets.token_hex(8)
        tables = {**schemas, **beside}
        return self._with([Definition(name, columns_of(each), each, query, made=made) for name, each in tables.items()])

    def with_connector(self, statement: ConnectorDefinition) -> Self:
        """Add the tables of a source, with one of its positions, or that of a sink, with the rows that it has."""
        schemas = {each.name: each.schema for each in statement.tables}
        schemas[f"{statement.name}_positions" if schemas else statement.name] = _POSITIONS
        there = [self.definitions[name] for name in schemas if name in self.definitions]
        if there and all(each.query == statement.text for each in there):
            return self
        if there or len(schemas) != len(statement.tables) + 1:
            kind, name = (there[0].kind, there[0].name) if there else ("source", statement.name)
            raise ConfigurationError(f"there is a {kind} {name} already: give another name, or drop {kind} {name} first")
        if statement.view:
            if statement.view not in self.definitions:
                raise OutputError(f"sink {statement.name}: {unknown(statement.view, self.definitions)}")
            columns = self.definitions[statement.view].columns
            schemas[statement.name] = arrow_schema(tuple(Column(each.name, each.kind) for each in columns))
        return self._with_tables(schemas, statement.text)

    def with_view(self, name: str, query: str, *, replace: bool = False) -> Self:
        """Add a view of earlier tables and views. One that is there is replaced, and what reads it compiled anew."""
        name = checked_name(name)
        there = self.definitions.get(name)
        if there is not None and not (replace and there.schema is None):
            raise ConfigurationError(f"there is a table or view {name} already: give another name")
        if there is None:
            return self._with([self._compiled(name, query)])
        readers = self.readers([name])
        for read in tables_read(query):
            if read == name or read in readers:
                raise SqlError(f"view {name} cannot read {read}, which reads {name}")
        return self._removed([name, *readers])._added({name: query, **{each: self.definitions[each].query for each in readers}})

    def without(self, names: Collection[str], *, cascade: bool = False) -> Self:
        """Drop tables and views; those that others read are refused, or with ``cascade`` the others are dropped too."""
        for name in names:
            if name not in self.definitions:
                raise OutputError(unknown(name, self.definitions))
            if self.definitions[name].owner == "table":
                raise ConfigurationError(f"{name} goes with a table that has a lateness: drop that")
        texts = {each.query for each in map(self.definitions.__getitem__, names) if each.schema is not None and each.query}
        names = [*names, *(name for name, each in self.definitions.items() if each.query in texts and name not in names)]
        readers = self.readers(names)
        if readers and not cascade:
            raise ConfigurationError(f"{', '.join(names)} is read by {', '.join(readers)}: drop these first, or write CASCADE")
        return self._removed([*names, *readers])

    def with_statements(self, statements: Iterable[Statement]) -> Self:
        """Apply the statements of a script, one after another."""
        catalog = self
        for each in statements:
            match each:
                case TableDefinition(name, schema):
                    catalog = catalog.with_table(name, schema)
                case ViewDefinition(name, query, replace):
                    catalog = catalog.with_view(name, query, replace=replace)
                case ConnectorDefinition():
                    catalog = catalog.with_connector(each)
                case DropStatement(name, kind, cascade):
                    there = catalog.definitions.get(name)
                    if there is not None and there.kind != kind:
                        raise ConfigurationError(f"{name} is a {there.kind}: write DROP {there.kind.upper()}")
                    catalog = catalog.without([name], cascade=cascade)
        return catalog

    def with_script(self, statements: Sequence[Statement]) -> Self:
        """Apply what a script has changed since it was applied last; views that have left it are dropped, tables never.

        What the script defines as before stays as it is, also where a view was replaced or dropped since.
        """
        catalog, wanted = self, dict[str, str]()
        for each in statements:
            if isinstance(each, TableDefinition):
                catalog = catalog.with_table(each.name, each.schema)
            elif isinstance(each, ConnectorDefinition) and not each.view:
                catalog = catalog.with_connector(each)
        for each in statements:
            if isinstance(each, DropStatement):
                raise ConfigurationError(f"drop {each.name}: the script that a server starts with says what there is")
            if isinstance(each, ViewDefinition):
                there = catalog.definitions.get(each.name)
                if each.name in wanted or (there is not None and there.schema is not None):
                    raise ConfigurationError(f"there is a table or view {each.name} already: give another name")
                wanted[each.name] = each.query
        texts = {name: query.strip() for name, query in wanted.items()}
        changed = [name for name, text in texts.items() if self.script.get(name) != text]
        gone = [name for name in self.script if name not in wanted]
        removed = [name for name in (*gone, *changed) if name in catalog.definitions]
        readers = [name for name in catalog.readers(removed) if name not in removed]
        left = catalog._removed([*removed, *readers])
        again = {name: catalog.definitions[name].query for name in readers}
        pending = {name: wanted[name] if name in changed else again[name] for name in wanted if name in changed or name in again}
        catalog = left._added({**pending, **again})
        for each in statements:
            if isinstance(each, ConnectorDefinition) and each.view:
                catalog = catalog.with_connector(each)
        return attrs.evolve(catalog, script=texts)

    def reads(self, query: str) -> frozenset[str]:
        """Return what a query reads, with the watermarks of tables."""
        names = tables_read(query, self.definitions) & self.definitions.keys()
        return names.union(watermark_of(name) for name in names if self.definitions[name].as_read.watermark is not None)

    def readers(self, names: Collection[str]) -> list[str]:
        """Return the views that read ``names``, also through others, in their order."""
        readers: dict[str, None] = {}
        for each in self.definitions.values():
            if each.name not in names and not each.reads.isdisjoint({*names, *readers}):
                readers[each.name] = None
        return list(readers)

    def _with(self, more: Sequence[Definition]) -> Self:
        return attrs.evolve(self, definitions={**self.definitions, **{each.name: each for each in more}})

    def _removed(self, names: Collection[str]) -> Self:
        return attrs.evolve(self, definitions={name: each for name, each in self.definitions.items() if name not in names})

    def _compiled(self, name: str, query: str) -> Definition:
        reads = self.reads(query)
        tables = tuple((read, self.definitions[read].as_read) for read in sorted(reads))
        return Definition(name, _columns(query, tables, self.functions), None, query, reads, self.functions)

    def _added(self, queries: Mapping[str, str]) -> Self:
        """Add views, in their order, but each behind those that it reads."""
        catalog, pending = self, dict(queries)
        while pending:
            ready = (name for name, query in pending.items() if tables_read(query).isdisjoint(pending.keys() - {name}))
            name = next(ready, next(iter(pending)))
            try:
                catalog = catalog._with([catalog._compiled(name, pending.pop(name))])
            except SqlError as error:
                raise SqlError(f"view {name}: {error}") from None
        return catalog

    def relations(self) -> Relations:
        """Return its tables and views as a checkpoint describes them."""
        return {
            each.name: RelationGraph("view", " ".join(each.query.split()), tuple(sorted(each.reads)), ())
            if each.schema is None
            else RelationGraph("table", ", ".join(f"{column.name} {column.kind.value}" for column in each.columns), (), ())
            for each in self.definitions.values()
        }

    def encode(self) -> Encoded:
        """Return it as plain data."""
        definitions = [
            (each.name, None if each.schema is None else each.schema.serialize().to_pybytes(), each.query, each.made)
            for each in self.definitions.values()
        ]
        return definitions, dict(self.script)

    @classmethod
    def decode(cls, encoded: Encoded, functions: tuple[tuple[str, UserFunction], ...] = ()) -> Self:
        """Return an encoded catalog, whose queries are compiled."""
        definitions, script = encoded
        catalog = cls(functions=functions)
        for name, schema, query, made in definitions:
            if schema is None:
                catalog = catalog._added({name: query})
            else:
                table = pa.ipc.read_schema(pa.py_buffer(schema))
                catalog = catalog._with([Definition(name, columns_of(table), table, query, made=made)])
        return attrs.evolve(catalog, script=script)


@functools.lru_cache(1000)  # a restart compiles the catalog of each definition that it repeats
def _columns(
    query: str, tables: tuple[tuple[str, ReadTable], ...], functions: tuple[tuple[str, UserFunction], ...]
) -> tuple[Column, ...]:
    try:
        return result_columns(query, dict(tables), dict(functions))
    except RecursionError:
        raise SqlError("the query is nested too deeply") from None
