"""Names in ``HAVING``, ``QUALIFY``, ``ORDER BY`` and ``DISTINCT ON`` that several columns have.

Where a selected column and one of ``FROM`` share a name, sqlglot takes the selected one. DuckDB does so where the name is all
that is ordered by, and in ``HAVING`` outside of aggregates unless it is grouped by. Elsewhere it takes the column of ``FROM``.

A name that several tables of ``FROM`` have is ambiguous, where sqlglot looks for it outside, and among the selected columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from typing import Final, NamedTuple

from sqlglot import exp
from sqlglot.optimizer.resolver import Resolver
from sqlglot.optimizer.scope import Scope, traverse_scope, walk_in_scope
from sqlglot.schema import Schema

from timely.differential.tables.expressions.join_order import using_names
from timely.differential.tables.names.clauses import star_of
from timely.differential.tables.values.kinds import lower_case
from timely.differential.tables.values.refusals import refusal
from timely.errors import SqlError

_NUMBER: Final = "clause names"
"""Under which a ``SELECT`` has its number, which its copies have too."""

_VALUE: Final = "value of a selected column"
"""Of what stands in the place of a name: its own names are of ``FROM``."""

_CLAUSES: Final = (exp.Select, exp.From, exp.Join, exp.Lateral, exp.Having, exp.Qualify, exp.Order, exp.Distinct)

_AGGREGATES: Final = (exp.AggFunc, exp.Filter, exp.WithinGroup)


def last_of_name(select: exp.Expr, name: exp.Expr) -> exp.Expr | None:
    """Return what a name is that is all that is ordered by, where several columns are selected by it; ``None`` for others.

    >>> from sqlglot import parse_one
    >>> select = parse_one("select *, -a as a, b as a, b from t")
    >>> last_of_name(select, exp.column("A")), last_of_name(select, exp.column("b"))
    (Column(
      this=Identifier(this=b, quoted=False)), None)
    """
    if not isinstance(select, exp.Select) or not isinstance(name, exp.Column) or name.table:
        return None
    wanted = lower_case(name.name)
    found = [output for output in select.expressions if output.is_star or lower_case(output.alias_or_name) == wanted]
    aliases = [output for output in found if isinstance(output, exp.Alias)]
    return aliases[-1].this if aliases and len(found) > 1 else None


def replace_repeated_names(select: exp.Select) -> None:
    """Have ``ORDER BY`` and ``DISTINCT ON`` name what is meant by a name of several selected columns: the last alias."""
    for part in _ordered(select):
        value = last_of_name(select, part.unnest())
        if value is not None:
            copy = value.copy()
            copy.meta[_VALUE] = True
            part.replace(copy)


def _ordered(select: exp.Select) -> list[exp.Expr]:
    order, distinct = select.args.get("order"), select.args.get("distinct")
    parts = [] if order is None else [ordered.this for ordered in order.expressions]
    return parts + ([] if distinct is None or distinct.args.get("on") is None else list(distinct.args["on"].expressions))


class SharedName(NamedTuple):
    """A name without a table in a clause of a ``SELECT``, and whether it must be grouped by to be one of ``FROM``."""

    select: exp.Select
    column: exp.Column
    grouped: bool


def shared_names(tree: exp.Expr) -> list[SharedName]:
    """Return the names in clauses that selected columns have too, and give each ``SELECT`` a number.

    >>> from sqlglot import parse_one
    >>> found = shared_names(parse_one("select -a as a, b from t qualify a > 1 order by a, abs(a), b"))
    >>> [name.column.parent.sql() for name in found]
    ['a > 1', 'ABS(a)']
    """
    found: list[SharedName] = []
    for number, select in enumerate(tree.find_all(exp.Select)):
        select.meta[_NUMBER] = number
        aliases = [output for output in select.expressions if isinstance(output, exp.Alias)]
        outputs = {lower_case(output.alias) for output in aliases if not _keeps_its_name(output)}
        if outputs:
            found += [name for name in _names(select) if lower_case(name.column.name) in outputs]
    return found


def _keeps_its_name(output: exp.Alias) -> bool:
    return isinstance(output.this, exp.Column) and lower_case(output.this.name) == lower_case(output.alias)


def _names(select: exp.Select) -> Iterator[SharedName]:
    """Yield the names without a table in the clauses, but for those that are all that is ordered by."""
    parts = [part for part in _ordered(select) if part.meta.get(_VALUE) or not isinstance(part.unnest(), exp.Column)]
    for clause in [select.args.get("having"), select.args.get("qualify"), *parts]:
        for node in () if clause is None else walk_in_scope(clause):
            if isinstance(node, exp.Column) and not node.table:
                inside = isinstance(node.find_ancestor(*_AGGREGATES, exp.Select), _AGGREGATES)
                yield SharedName(select, node, isinstance(clause, exp.Having) and not inside)


def take_from(names: list[SharedName], qualified: exp.Expr, schema: Schema) -> bool:
    """Name the table of those names that mean columns of ``FROM``; return whether there are any.

    ``qualified`` is the same query as sqlglot has resolved it: there all queries in ``FROM`` have columns.
    """
    tables = {
        scope.expression.meta[_NUMBER]: _tables_of(Resolver(scope, schema))
        for scope in traverse_scope(qualified)
        if _NUMBER in scope.expression.meta
    }
    taken: list[tuple[exp.Column, str]] = []
    for select, column, grouped in names:
        tables_of = tables.get(select.meta[_NUMBER], _no_tables)
        having = tables_of(lower_case(column.name))
        if having and (not grouped or _is_grouped_by(column, select, tables_of)):
            if len(having) > 1:
                raise _ambiguous(column, having)
            taken.append((column, having[0]))
    for column, table in taken:
        column.set("table", exp.to_identifier(table))
    return bool(taken)


def check_unambiguous(tree: exp.Expr, qualified: exp.Expr, schema: Schema) -> None:
    """Raise ``SqlError`` for a name that several tables of ``FROM`` have."""
    selects = {select.meta[_NUMBER]: select for select in tree.find_all(exp.Select) if len(select.args.get("joins") or []) > 0}
    for scope in traverse_scope(qualified) if selects else ():
        select = selects.get(scope.expression.meta.get(_NUMBER))
        using = [] if select is None else [using_names(join) for join in select.args["joins"]]
        if select is None or [] in using:
            continue
        merged = {lower_case(name) for names in using for name in names or ()}
        tables_of = _tables_of(Resolver(scope, schema))
        for node in walk_in_scope(select):
            if isinstance(node, exp.Column) and not node.table and isinstance(node.find_ancestor(*_CLAUSES), exp.Select):
                if isinstance(node.parent, exp.Star):
                    continue  # EXCLUDE leaves out all of this name
                having = tables_of(lower_case(node.name))
                if len(having) > 1 and lower_case(node.name) not in merged:
                    raise _ambiguous(node, having)


def check_stars(tree: exp.Expr, qualified: exp.Expr, schema: Schema) -> None:
    """Raise ``SqlError`` where ``*`` leaves out, replaces or renames no column, or several: sqlglot does as it likes."""
    selects = {select.meta[_NUMBER]: select for select in tree.find_all(exp.Select) if any(map(star_of, select.expressions))}
    for scope in traverse_scope(qualified) if selects else ():
        select = selects.get(scope.expression.meta.get(_NUMBER))
        if select is None:
            continue
        resolver = Resolver(scope, schema)
        tables_of, seen = _tables_of(resolver), set[str]()
        for output in select.expressions:
            more = _unmerged(select, resolver) if isinstance(output, exp.Star) else None
            if more:
                raise refusal(output, f"{more[0]} is also a column of a table that is not joined USING it: name the columns")
        for column, written_in, clause in _beside_stars(select):
            name, tables = lower_case(column.name), {lower_case(column.text("table")), lower_case(written_in)} - {""}
            having = [table for table in tables_of(name) if tables <= {table}]
            if not having or name in seen:
                raise refusal(column, "there is no other column of this name in *" if having else "* has no column of this name")
            if len(having) > 1 and clause != "except_":
                raise _ambiguous(column, having)
            seen.add(name)


def _unmerged(select: exp.Select, resolver: Resolver) -> list[str]:
    """Return the names of columns that are one by ``USING``, where one more table has such a column."""
    columns, merged = Counter[str](), set[str]()
    joins = select.args.get("joins") or []
    if all(using_names(join) is None for join in joins):
        return []
    named = resolver.scope.expression  # where each item has a name
    for join, item in zip((select.args["from_"], *joins), (named.args["from_"], *named.args["joins"]), strict=True):
        if join.args.get("kind") in ("SEMI", "ANTI"):
            continue
        names, using = resolver.get_source_columns(item.this.alias_or_name), using_names(join)
        shared = set[str]() if using is None else set(map(lower_case, using)) or set(names) & set(columns)
        merged |= shared
        columns.update(name for name in names if name not in shared)
    return [name for name in merged if columns[name] > 1]


def _beside_stars(select: exp.Select) -> Iterator[tuple[exp.Expr, str, str]]:
    """Yield the names that ``EXCLUDE``, ``REPLACE`` and ``RENAME`` have, the table whose columns they are of, and which it is."""
    for output in select.expressions:
        star = star_of(output)
        for clause in ("except_", "replace", "rename") if star is not None else ():
            for part in star.args.get(clause) or []:
                column = part.this if clause == "rename" else part.args["alias"] if clause == "replace" else part
                yield column, output.text("table"), clause


def check_own_names(qualified: exp.Expr, schema: Schema) -> None:
    """Raise ``SqlError`` where a query reads a column of an item of ``FROM`` that DuckDB gives another name.

    There a second ``id`` is called ``id_1``, and a column ``id_1`` after it ``id_1_1``.
    """
    for scope in traverse_scope(qualified):
        renamed = {name: _renamed(_columns_of(source, schema)) for name, source in scope.sources.items()}
        if not any(renamed.values()):
            continue
        read: list[tuple[exp.Expr, str]] = [
            (column, column.name) for column in scope.columns if column.name in renamed.get(column.table, ())
        ]
        both = set[str]().union(*renamed.values())
        for join in scope.expression.args.get("joins") or []:
            names = using_names(join)
            if names is not None:
                read += [(join, name) for name in both if not names or name in map(lower_case, names)]
        for node, name in read:
            raise refusal(node, f"{name} may be another column, since two columns of one item of FROM have one name: rename one")


def _columns_of(source: Scope | exp.Table, schema: Schema) -> list[str]:
    """Return the names of the columns of an item of ``FROM``, as they are written."""
    item = source if isinstance(source, exp.Table) else source.expression
    query = item.this.unnest() if isinstance(item, exp.Lateral) else item
    named = item.alias_column_names if isinstance(item, exp.Table | exp.UDTF) else []
    if isinstance(query, exp.Query):
        columns = query.named_selects
    else:
        columns = list(schema.column_names(item)) if isinstance(item, exp.Table) else []
    return [*named, *columns[len(named) :]]


def _renamed(columns: Sequence[str]) -> set[str]:
    """Return the names of columns that are others in DuckDB, since two columns have one name."""
    given, taken, renamed = set[str](), set[str](), set[str]()
    for name in map(lower_case, columns):
        new = next(new for new in chain([name], (f"{name}_{number}" for number in count(1))) if new not in taken)
        if new != name:
            renamed.update({new} if name in given else {name, new})
        given.add(name)
        taken.add(new)
    return renamed


def _ambiguous(column: exp.Expr, tables: Sequence[str]) -> SqlError:
    return refusal(column, f"the name is ambiguous: write {' or '.join(f'{table}.{column.name}' for table in tables)}")


def _no_tables(name: str) -> list[str]:
    return []


def _tables_of(resolver: Resolver) -> Callable[[str], list[str]]:
    """Return what gives the tables in ``FROM`` that have a column."""
    joins = resolver.scope.expression.args.get("joins") or []
    gone = {join.alias_or_name for join in joins if join.kind in ("SEMI", "ANTI")}
    columns = {name: resolver.get_source_columns(name) for name in resolver.scope.selected_sources if name not in gone}
    return lambda name: [table for table, names in columns.items() if name in names]


def _keys(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the expressions that a query is grouped by."""
    group = select.args.get("group")
    if group is None:
        return
    parts = [output.unalias() for output in select.expressions] if group.args.get("all") else list(group.expressions)
    while parts:
        part = parts.pop().unnest()
        if isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
            parts += part.expressions
        elif part.is_int and 0 < int(part.name) <= len(select.expressions):
            yield select.expressions[int(part.name) - 1].unalias()
        else:
            yield part


def _is_grouped_by(column: exp.Column, select: exp.Select, tables_of: Callable[[str], list[str]]) -> bool:
    """Return whether a column in ``HAVING``, or an expression around it, is one that the query is grouped by."""

    def resolved(node: exp.Expr) -> exp.Expr:
        def named(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column):
                return part
            name = lower_case(part.name)
            return exp.column(name, lower_case(part.table) or next(iter(tables_of(name)), None))

        return node.copy().transform(named)

    keys = {resolved(key) for key in _keys(select)}
    node: exp.Expr | None = column
    while node is not None and not isinstance(node, exp.Having):
        if resolved(node) in keys:
            return True
        node = node.parent
    return False
