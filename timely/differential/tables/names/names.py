"""Names of a query: each column with the table that it is of.

Tables are known by the names that the query calls them, in lower case, and the columns that they have.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from timely.differential.tables.names.clause_names import check_own_names, check_stars, check_unambiguous, shared_names, take_from
from timely.differential.tables.values.kinds import Column, Kind, lower_case
from timely.differential.tables.values.refusals import no_table, refusal
from timely.errors import SqlError


def qualified(tree: exp.Expr, tables: Mapping[str, Sequence[Column]]) -> exp.Query:
    """Return a copy in which each column has its table; ``SqlError`` for a name that is not found, or found twice."""
    schema: dict[str, object] = {
        name: {column.name: _sql_type(column.kind) for column in columns} for name, columns in tables.items()
    }
    known = MappingSchema(schema, dialect="duckdb", normalize=False)  # which parses names otherwise: they are any texts
    names = shared_names(tree)
    try:
        found = qualify(tree.copy(), schema=known, dialect="duckdb", quote_identifiers=False, identify=False)
        check_unambiguous(tree, found, known)
        check_stars(tree, found, known)
        if take_from(names, found, known):
            found = qualify(tree.copy(), schema=known, dialect="duckdb", quote_identifiers=False, identify=False)
    except (OptimizeError, AssertionError) as error:
        raise _unresolved(tree, str(error), tables) from None
    assert isinstance(found, exp.Query)
    check_own_names(found, known)
    for identifier in found.find_all(exp.Identifier):
        identifier.set("quoted", exp.to_identifier(identifier.name).quoted)  # equal in whatever way they are written
    return found


def _sql_type(kind: Kind) -> str:
    """Return the name of a type for sqlglot, which resolves the fields of structs by it."""
    if kind.element is not None:
        return f"{_sql_type(kind.element)}[]"
    if kind.fields:
        fields = ((exp.to_identifier(name, quoted=True).sql(dialect="duckdb"), part) for name, part in kind.fields)
        return f"STRUCT({', '.join(f'{name} {_sql_type(part)}' for name, part in fields)})"
    return {Kind.NULL: "VARCHAR", Kind.INTEGER: "BIGINT"}.get(kind, kind.value)


def _unresolved(tree: exp.Expr, message: str, tables: Mapping[str, Sequence[Column]]) -> SqlError:
    """Return the error for a name that is not found, or found twice."""
    own = {lower_case(cte.alias) for cte in tree.find_all(exp.CTE)}
    read: dict[str, list[str]] = {}
    for item in tree.find_all(exp.Table):
        name = lower_case(item.name)
        if name in own or not isinstance(item.this, exp.Identifier):
            continue
        if name not in tables:
            return no_table(item, tables)
        read[lower_case(item.alias_or_name)] = [column.name for column in tables[name]]
    named = re.search(r"(column|table|join):? '?(.+?)('? \(line|' could not be resolved|$)", message, re.IGNORECASE | re.DOTALL)
    if named is None:
        return refusal(tree, f"its names cannot be resolved: {message}")
    name = lower_case(named[2])
    known = own.union(read, *read.values(), (lower_case(part.alias) for part in tree.find_all(exp.Subquery, exp.UDTF)))
    for column in tree.find_all(exp.Column):  # of one that is qualified the message may have the table alone
        table = lower_case(column.table)
        if table and table not in known and name in (table, lower_case(column.name)):
            return refusal(column, f"there is no table {table} in FROM; there are: {', '.join(read) or 'none'}")
    found = [part for part in tree.find_all(exp.Column, exp.Identifier) if lower_case(part.name) == name]
    having = [alias for alias, columns in read.items() if name in columns]
    if len(having) > 1:
        why = f"the name is ambiguous: write {' or '.join(f'{alias}.{name}' for alias in having)}"
    else:
        near = difflib.get_close_matches(name, [each for columns in read.values() for each in columns], 1)
        meant = f": did you mean {exp.to_identifier(near[0]).sql(dialect='duckdb')}?" if near and near[0] != name else ""
        here = "; ".join(f"{alias} has {', '.join(columns)}" for alias, columns in read.items())
        why = f"there is no column of this name; {here or 'FROM has no table'}{meant}"
    return refusal(found[0], why) if found else refusal(tree, f"{name}: {why}")
