"""The binder: it gives each name of a query the column that it means, in one pass from the outermost query to the innermost.

Afterwards each column has the table that it is of. No table has the name of one around it, ``*`` and ``USING`` are written out,
and what is ordered by a selected column refers to its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

from sqlglot import exp

from timely.differential.tables.expressions.relation import output_column
from timely.differential.tables.expressions.tree_nodes import columns_of, has_query, nodes_in
from timely.differential.tables.names.clauses import joined_in, star_of
from timely.differential.tables.names.name_scopes import FromItem, MergedColumn, QueryScope, distinct_names
from timely.differential.tables.values.dialect import WRITTEN
from timely.differential.tables.values.kinds import lower_case
from timely.differential.tables.values.refusals import no_table, refusal
from timely.errors import SqlError

Tables = Mapping[str, Sequence[str]]
"""The columns of each table that a query may read."""

_AGGREGATES: Final = (exp.AggFunc, exp.Filter, exp.WithinGroup)
_SHAPING: Final = ("distinct", "order", "limit", "offset", "with_")


def bind(query: exp.Query, tables: Tables) -> dict[str, set[str]]:
    """Bind the names of a query, whose tree is changed; return which columns it reads of which tables.

    >>> from sqlglot import parse_one
    >>> query = parse_one("select n + 1 as m, u.* from t join u using (a) where m > B", read="duckdb")
    >>> reads = bind(query, {"t": ["a", "n"], "u": ["a", "b"]})
    >>> {table: sorted(columns) for table, columns in reads.items()}
    {'t': ['a', 'n'], 'u': ['a', 'b']}
    >>> query.sql()
    'SELECT t.n + 1 AS m, u.a, u.b FROM t AS t JOIN u AS u ON t.a = u.a WHERE t.n + 1 > u.b'
    """
    binder = _Binder(tables)
    binder.query(query, None, tables)
    return binder.reads


class _Binder:
    def __init__(self, tables: Tables) -> None:
        self.base = tables
        self.reads: dict[str, set[str]] = {}

    # -- queries ---------------------------------------------------------------------------------------------------

    def query(self, node: exp.Expr, around: QueryScope | None, tables: Tables, exists: bool = False) -> list[str]:
        """Bind a query and return the names of its columns; ``around`` is what it stands in."""
        tables = self.with_tables(node, around, tables)
        if isinstance(node, exp.Select):
            return self.select(node, QueryScope.inside(around, tables), exists)
        if isinstance(node, exp.SetOperation):
            left, right = (self.query(side, around, tables) for side in (node.this, node.expression))
            return self.set_operation(node, left, right)
        if isinstance(node, exp.Subquery):
            return self.query(node.this, around, tables, exists)
        raise refusal(node, "this is not a query that a view can be")

    def with_tables(self, node: exp.Expr, around: QueryScope | None, tables: Tables) -> Tables:
        """Return the tables that a query may read: ``tables`` and those of its ``WITH``."""
        clause = node.args.get("with_")
        if clause is None:
            return tables
        tables = dict(tables)
        for cte in clause.expressions:
            alias = cte.args["alias"]
            for name in (alias.this, *(alias.args.get("columns") or [])):
                _write(name)
            recursive = clause.args.get("recursive")
            columns = self.recursive(cte, around, tables) if recursive else self.query(cte.this, around, tables)
            tables[alias.name] = _renamed(cte, columns)
        return tables

    def recursive(self, cte: exp.CTE, around: QueryScope | None, tables: Tables) -> list[str]:
        """Bind a query of ``WITH RECURSIVE``, whose step may read its own rows."""
        body, name = cte.this, cte.alias
        if not _reads(body, name):
            return self.query(body, around, tables)
        if type(body) is not exp.Union or _reads(body.this, name):
            raise refusal(cte, "a recursive query is base UNION [ALL] step, and only the step reads it")
        tables = self.with_tables(body, around, tables)
        columns = self.query(body.this, around, tables)
        return self.set_operation(body, columns, self.query(body.expression, around, {**tables, name: _renamed(cte, columns)}))

    def set_operation(self, node: exp.SetOperation, left: list[str], right: list[str]) -> list[str]:
        """Bind the order of a set operation, which is one of its columns."""
        columns = list(dict.fromkeys([*left, *right])) if node.args.get("by_name") else left
        order = node.args.get("order")
        if order is not None:
            places: dict[str, int] = {}
            for names in (columns, right):
                for place, name in enumerate(names):
                    places.setdefault(name, place)
            aliases = {name: output_column(place) for name, place in places.items()}
            self.order(order, QueryScope(None, {}, set(), aliases=aliases), columns, places)
        return columns

    def select(self, node: exp.Select, scope: QueryScope, exists: bool) -> list[str]:
        clause = node.args.get("from_")
        if clause is not None:
            self.item(clause.this, scope)
            for join in node.args.get("joins") or []:
                self.join(join, scope)
        before = {table: set(columns) for table, columns in self.reads.items()} if exists else {}
        names, places = self.outputs(node, scope)
        if exists and _selects_columns(node):  # only whether there are rows matters
            node.set("expressions", [exp.alias_(exp.Literal.number(1), "one")])
            for table, columns in before.items():
                self.reads[table].intersection_update(columns)
        self.clause(node, "where", scope)
        self.group(node, scope)
        having = node.args.get("having")
        if having is not None:
            self.expression(having, scope, self.named_first(node, having, scope))
        for window in node.args.get("windows") or []:
            self.expression(window, scope)
        self.clause(node, "qualify", scope)
        distinct, order = node.args.get("distinct"), node.args.get("order")
        if distinct is not None and distinct.args.get("on") is not None:
            for part in list(distinct.args["on"].expressions):
                self.ordered(part, scope, names, places)
        if order is not None:
            self.order(order, scope, names, places)
        return names

    def clause(self, node: exp.Expr, name: str, scope: QueryScope) -> None:
        clause = node.args.get(name)
        if clause is not None:
            self.expression(clause, scope)

    # -- FROM ------------------------------------------------------------------------------------------------------

    def item(self, node: exp.Expr, scope: QueryScope) -> None:
        """Bind an item, which may read those before it, and its joins."""
        inner, joins = joined_in(node), node.args.get("joins") or []
        if inner is not None and node.args.get("alias") is None:  # its joins come before those behind the parentheses
            inner.set("joins", [*(inner.args.get("joins") or []), *joins])
            node.replace(inner)
            self.item(inner, scope)
            return
        if inner is not None:  # the join has a name, so it is a table of its own
            node.set("this", exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner)))
        if not joins:
            self.single(node, scope)
            return
        nested = QueryScope(scope.around, scope.tables, scope.taken, scope.names)
        self.single(node, nested)
        for join in joins:
            self.join(join, nested)
        scope.items += nested.items
        scope.merged.update(nested.merged)

    def single(self, node: exp.Expr, scope: QueryScope) -> None:
        """Bind a table, a subquery, a list of rows or the elements of a list."""
        inner = node.this if isinstance(node, exp.Lateral) else node
        if isinstance(inner, exp.Table) and isinstance(inner.this, exp.Identifier):
            self.table(inner, scope)
        elif isinstance(inner, exp.Subquery):
            self.name(node, scope, "unnamed_subquery", self.query(inner, scope, scope.tables))
        elif isinstance(inner, exp.Values):
            for row in list(inner.expressions):
                self.expression(row, scope)
            width = len(row.expressions) if isinstance(row, exp.Tuple) else 1
            self.name(node, scope, "valueslist", [f"col{place}" for place in range(width)])
        elif isinstance(inner, exp.Unnest):
            for part in list(inner.expressions):
                self.expression(part, scope)
            offset = inner.args.get("offset")
            ordinality = offset.name if isinstance(offset, exp.Identifier) else "ordinality"
            self.name(node, scope, "unnest", ["unnest", ordinality] if offset else ["unnest"])
        else:
            raise refusal(node, "this in FROM is not supported: tables, subqueries, VALUES and UNNEST are")

    def table(self, node: exp.Table, scope: QueryScope) -> None:
        name = lower_case(node.name)
        columns = scope.tables.get(name)
        if columns is None:
            raise no_table(node, scope.tables)
        _write(node.this)
        item = self.name(node, scope, name, columns)
        if columns is self.base.get(name):
            read = self.reads.setdefault(name, set())
            if item.columns is columns:
                item.on_read = read.add
            else:
                read.update(columns)  # by names that are not its own

    def name(self, node: exp.Expr, scope: QueryScope, name: str, columns: Sequence[str]) -> FromItem:
        """Give an item of FROM with these columns a name that no item around it has."""
        alias = node.args.get("alias")
        if alias is None:
            alias = exp.TableAlias()
            node.set("alias", alias)
        written = alias.this or (node.this if isinstance(node, exp.Table) else None)
        if written is not None:
            name = lower_case(written.name)
            if name in scope.names:
                raise refusal(written, "there are two of this table here: rename one")
            scope.names.add(name)
        columns = _renamed(node, columns)
        unique = name
        while unique in scope.taken:
            unique += "_"
        scope.taken.add(unique)
        alias.set("this", exp.to_identifier(unique))
        item = FromItem(name, unique, columns)
        scope.items.append(item)
        return item

    def join(self, join: exp.Expr, scope: QueryScope) -> None:
        """Bind a joined item, and what it is joined by: ``USING`` becomes a condition."""
        left = list(scope.items)
        self.item(join.this, scope)
        right = scope.items[len(left) :]
        method = str(join.args.get("method") or "").upper()
        names: list[tuple[str, exp.Expr]] = [(lower_case(name.name), name) for name in join.args.get("using") or []]
        if method == "NATURAL":
            names = [(name, join) for name, _ in scope.columns(left) if scope.sources(name, right)]
            join.set("method", None)
            if not names:
                raise refusal(join, "a NATURAL JOIN needs columns of one name on both sides")
        if names:
            join.set("using", None)
            conditions = [self.using(join, scope, name, node, left, right) for name, node in names]
            if method == "ASOF":
                last = conditions.pop()
                conditions.append(exp.GTE(this=last.this, expression=last.expression))
            join.set("on", exp.and_(*conditions, copy=False, wrap=False))
        elif join.args.get("on") is not None:
            self.expression(join.args["on"], scope)
        if join.args.get("kind") in ("SEMI", "ANTI"):
            del scope.items[len(left) :]

    def using(
        self, join: exp.Expr, scope: QueryScope, name: str, node: exp.Expr, left: Sequence[FromItem], right: Sequence[FromItem]
    ) -> exp.Expr:
        """Return the condition on two columns of one name, which are one column from here on."""
        sides = []
        for items in (left, right):
            sources = scope.sources(name, items)
            if not sources:
                raise refusal(node, f"there is no column of this name in {' or '.join(item.name for item in items)}")
            sides.append(scope.only(sources, name, node))
        one, other = sides[0].value(name), sides[1].value(name)
        if join.args.get("kind") not in ("SEMI", "ANTI"):
            before = sides[0] if isinstance(sides[0], MergedColumn) else MergedColumn(one)
            merged = before.joined(other, str(join.args.get("side") or "").lower())
            for item in (*left, *right):
                if name in item.columns and scope.merged.get((item.unique, name), item) in sides:
                    scope.merged[item.unique, name] = merged
        return exp.EQ(this=one, expression=other)

    # -- selected columns ------------------------------------------------------------------------------------------

    def outputs(self, node: exp.Select, scope: QueryScope) -> tuple[list[str], dict[str, int]]:
        """Bind the selected columns; return their names, and the places of those with ``AS``: of several the last."""
        outputs: list[exp.Expr] = []
        places: dict[str, int] = {}
        used = {lower_case(output.output_name) for output in node.expressions}
        for index, output in enumerate(list(node.expressions)):
            star = star_of(output)
            if star is not None:
                outputs += self.star(output, star, scope, places, len(outputs))
                continue
            name = lower_case(output.output_name)
            if not name:
                name = _unused(str(lower_case(output.sql(dialect=WRITTEN, comments=False))), used)
                used.add(name)
            aliased = bool(output.args.get("alias")) and isinstance(output, exp.Alias | exp.Subquery)
            self.expression(output.this if isinstance(output, exp.Alias) else output, scope)
            bound = node.expressions[index]
            if isinstance(bound, exp.Alias):
                _write(bound.args["alias"])
            else:
                if isinstance(bound, exp.Subquery):
                    bound.set("alias", None)
                if not isinstance(bound, exp.Column) or bound.name != name:
                    bound = exp.Alias(this=bound, alias=exp.to_identifier(name))
            if aliased:
                scope.aliases[name], places[name] = bound.this, len(outputs)
            outputs.append(bound)
        node.set("expressions", outputs)
        return [output.alias_or_name for output in outputs], places

    def star(self, output: exp.Expr, star: exp.Star, scope: QueryScope, places: dict[str, int], first: int) -> list[exp.Expr]:
        """Return the columns of ``*`` or ``t.*``, without those of ``EXCLUDE``, and with those of ``REPLACE`` and ``RENAME``."""
        table = lower_case(output.text("table"))
        items = [item for item in scope.items if item.name == table] if table else scope.items
        if not items:
            raise scope.no_table(output, table) if table else refusal(output, "* has no columns here")
        columns = [(name, items[0]) for name in items[0].columns] if table else scope.columns()
        changes: dict[str, tuple[str, Any]] = {}
        for clause in ("except_", "replace", "rename"):
            for part in star.args.get(clause) or []:
                column = part.this if clause == "rename" else part.args["alias"] if clause == "replace" else part
                name = lower_case(column.name)
                sources = [source for other, source in columns if other == name and _is_of(source, column)]
                if not sources or name in changes:
                    why = "there is no other column of this name in *" if sources else "* has no column of this name"
                    raise refusal(column, why)
                if clause != "except_":
                    scope.only(sources, name, column)
                changes[name] = clause, part
        selected: list[exp.Expr] = []
        for name, source in columns:
            clause, part = changes.get(name, ("", None))
            if clause == "except_" and _is_of(source, part):
                continue
            if clause == "replace":
                self.expression(part.this, scope)
            value = part.this if clause == "replace" else source.value(name)
            name = lower_case(part.alias) if clause == "rename" else name
            if clause in ("replace", "rename"):
                scope.aliases[name], places[name] = value, first + len(selected)
            plain = isinstance(value, exp.Column) and value.name == name
            selected.append(value if plain else exp.Alias(this=value, alias=exp.to_identifier(name)))
        return selected

    # -- groups and orders -----------------------------------------------------------------------------------------

    def group(self, node: exp.Select, scope: QueryScope) -> None:
        """Bind the keys of ``GROUP BY``, of which numbers are selected columns."""
        group = node.args.get("group")
        for part in [] if group is None else list(group.expressions):
            number = _number(part)
            if number is None:
                self.expression(part, scope)
            elif number > len(node.expressions):
                raise _no_place(part, len(node.expressions))
            else:
                part.replace(node.expressions[number - 1].unalias().copy())

    def named_first(self, node: exp.Select, having: exp.Expr, scope: QueryScope) -> set[int]:
        """Return the names of ``HAVING`` that mean selected columns before those of ``FROM``: outside of aggregates and keys."""
        first: set[int] = set()
        part: Any
        for column in columns_of(having) if scope.aliases else ():
            name = lower_case(column.name)
            if column.table or name not in scope.aliases or not scope.sources(name):
                continue
            if column.find_ancestor(*_AGGREGATES, exp.Query) is not node:
                continue
            keys, part = _keys(node), column
            while part is not having and not has_query(part) and self.of_from(part, scope) not in keys:
                part = part.parent
            if part is having or has_query(part):
                first.add(id(column))
        return first

    def of_from(self, node: exp.Expr, scope: QueryScope) -> exp.Expr:
        """Return a copy of an expression in which names without a table are columns of ``FROM``."""

        def bound(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column) or (not part.table and not scope.sources(lower_case(part.name))):
                return part
            return scope.column(part)

        return node.copy().transform(bound)

    def order(self, order: exp.Expr, scope: QueryScope, names: Sequence[str], places: Mapping[str, int]) -> None:
        """Bind the expressions of ``ORDER BY``; ``ALL`` is every column."""
        parts: list[exp.Expr] = []
        for ordered in order.expressions:
            if isinstance(ordered.this, exp.Var) and ordered.this.name.upper() == "ALL":
                for place in range(len(names)):
                    part = ordered.copy()
                    _replace(part.this, output_column(place))
                    parts.append(part)
            else:
                self.ordered(ordered.this, scope, names, places)
                parts.append(ordered)
        order.set("expressions", parts)

    def ordered(self, node: exp.Expr, scope: QueryScope, names: Sequence[str], places: Mapping[str, int]) -> None:
        """Bind what is ordered by: a number or a name that stands alone is a selected column, if there is one."""
        part, place = node.unnest(), _number(node)
        if place is not None and place > len(names):
            raise _no_place(node, len(names))
        if place is not None:
            place -= 1
        elif isinstance(part, exp.Column) and not part.table:
            name = lower_case(part.name)
            place = places.get(name)
            if place is None and name in names and len(scope.sources(name)) != 1:
                place = names.index(name)
        if place is None:
            self.expression(node, scope)
        else:
            _replace(node, output_column(place))

    # -- expressions -----------------------------------------------------------------------------------------------

    def expression(self, root: exp.Expr, scope: QueryScope, aliases: set[int] | frozenset[int] = frozenset()) -> None:
        """Bind the names in an expression; those of ``aliases`` are selected columns, though ``FROM`` has them too."""
        left = [root]
        while left:
            node = left.pop()
            if isinstance(node, exp.Column):
                if not isinstance(node.this, exp.Star):
                    self.column(node, scope, id(node) in aliases)
            elif isinstance(node, exp.Identifier):
                _write(node)
            elif isinstance(node, exp.Query):
                self.query(node, scope, scope.tables)
            elif isinstance(node, exp.Exists):
                self.query(node.this, scope, scope.tables, exists=True)
            elif isinstance(node, exp.Parameter | exp.Placeholder):
                raise refusal(node, "parameters have no values here")
            else:
                children: list[exp.Expr] = []
                for value in node.args.values():
                    if isinstance(value, exp.Expr):
                        children.append(value)
                    elif isinstance(value, list):
                        children += [part for part in value if isinstance(part, exp.Expr)]
                left += reversed(children)
                if isinstance(node, exp.Anonymous) and node.name.upper() == "ALL" and _is_query(children):
                    node.replace(exp.All(this=exp.Subquery(this=children[0])))  # ALL ((...) UNION (...)) is no function

    def column(self, node: exp.Column, scope: QueryScope, alias_first: bool) -> None:
        value = scope.column(node, alias_first)
        if isinstance(value, exp.Column):
            node.set("this", value.this)
            node.set("table", value.args.get("table"))
            node.set("db", None)
            node.set("catalog", None)
        else:
            _replace(node, value)


def _renamed(node: exp.Expr, columns: Sequence[str]) -> Sequence[str]:
    """Return the names that the columns of an item have: those that it gives them first, and each only once."""
    alias = node.args["alias"]
    named = alias.args.get("columns") or []
    if len(named) > len(columns):
        raise refusal(named[len(columns)], f"the names are more than the {len(columns)} columns")
    if not named and len(set(columns)) == len(columns):
        return columns
    names = distinct_names([*(lower_case(name.name) for name in named), *columns[len(named) :]])
    alias.set("columns", [exp.to_identifier(name) for name in names])
    return names


def _reads(query: exp.Expr, table: str) -> bool:
    return any(isinstance(node, exp.Table) and lower_case(node.name) == table for node in nodes_in(query))


def _write(name: exp.Expr) -> None:
    """Write a name as all that is equal to it is written."""
    text = lower_case(name.name)
    name.set("this", text)
    name.set("quoted", exp.to_identifier(text).quoted)


def _replace(node: exp.Expr, value: exp.Expr) -> None:
    """Put a value in the place of a name, and of its position in the text."""
    if not value.meta:
        value.meta.update(node.meta)
    node.replace(value)


def _is_of(source: Any, column: exp.Expr) -> bool:
    """Return whether a column of ``*`` may be that which ``EXCLUDE`` and the like name."""
    table = lower_case(column.text("table"))
    return not table or (isinstance(source, FromItem) and source.name == table)


def _selects_columns(select: exp.Select) -> bool:
    """Return whether a query only selects columns of its rows."""
    plain = all(isinstance(output.unalias(), exp.Column) for output in select.expressions)
    return plain and not any(select.args.get(name) for name in _SHAPING)


def _is_query(nodes: Sequence[exp.Expr]) -> bool:
    return len(nodes) == 1 and isinstance(nodes[0], exp.Query)


def _unused(name: str, used: set[str]) -> str:
    return next(new for number in count() if (new := f"{name}_{number}" if number else name) not in used)


def _number(node: exp.Expr) -> int | None:
    """Return the number that a key or an order is, or ``None`` for others."""
    part = node.unnest()
    if not part.is_int:
        return None
    number = int(part.to_py())
    if number < 1:
        raise refusal(node, "the numbers of columns begin with 1")
    return number


def _no_place(node: exp.Expr, width: int) -> SqlError:
    return refusal(node, f"there are only {width} columns")


def _keys(select: exp.Select) -> set[exp.Expr]:
    """Return the bound expressions that a query is grouped by."""
    group, keys = select.args.get("group"), set[exp.Expr]()
    outputs = [output.unalias() for output in select.expressions]
    parts = [] if group is None else outputs if group.args.get("all") else list(group.expressions)
    while parts:
        part = parts.pop().unnest()
        if isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
            parts += part.expressions
        else:
            keys.add(part)
    return keys
