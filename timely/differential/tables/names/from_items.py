"""``FROM``: the rows of its tables, subqueries and lists, joined, and what their columns are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs
from sqlglot import exp, maybe_parse

from timely.differential.tables.expressions.bound import Expr, Literal, NamedExpr, PlacedError, Ref, has_query, ids_in
from timely.differential.tables.expressions.calls import as_kind, call
from timely.differential.tables.names.dialect import WRITTEN
from timely.differential.tables.names.name_scopes import FromItem, MergedColumn, NameBinder, QueryScope, distinct_names
from timely.differential.tables.names.reader import identifier, is_comma, listed, name_in, read
from timely.differential.tables.names.refusals import placed, refusal
from timely.differential.tables.names.scalar_rules import element_of
from timely.differential.tables.operators.asof_joins import INEQUALITIES
from timely.differential.tables.operators.set_operations import merged
from timely.differential.tables.operators.table_joins import sides_of
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.nodes import ONE_ROW, QueryPlan, free
from timely.differential.tables.plan.push_down import conjuncts
from timely.differential.tables.values.json_functions import EACH
from timely.differential.tables.values.kinds import Kind, lower_case
from timely.errors import SqlError, did_you_mean, listed_names

_JOINS: Final = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


def source(binder: NameBinder, clause: exp.Expr | None, joins: Sequence[exp.Expr], scope: QueryScope) -> QueryPlan:
    """Return the rows of ``FROM`` and its joins."""
    if clause is None:
        return ONE_ROW
    (first,) = read(clause, "this")
    return _joined(binder, _item(binder, first, scope), joins, scope)


def _joined(binder: NameBinder, plan: QueryPlan, joins: Sequence[exp.Expr], scope: QueryScope) -> QueryPlan:
    """Return more joins; those behind a comma are of the item behind it, where that matters: RIGHT, FULL and NATURAL."""
    groups: list[list[exp.Expr]] = []
    for join in joins:
        if is_comma(join) or not groups:
            groups.append([])
        groups[-1].append(join)
    for group in groups:
        first, *others = group
        words = {str(join.args.get(name) or "").upper() for join in others for name in ("side", "method")}
        if is_comma(first) and words & {"RIGHT", "FULL", "NATURAL"}:
            nested = QueryScope(scope.around, scope.tables, scope.names)
            (item,) = read(first, "this")
            right = _item(binder, item, nested)
            for join in others:
                right = _join(binder, right, join, nested)
            scope.items += nested.items
            scope.merged.update(nested.merged)
            plan = _beside(plan, right, "inner", (), first)
            continue
        for join in group:
            plan = _join(binder, plan, join, scope)
    return plan


def _join(binder: NameBinder, left: QueryPlan, node: exp.Expr, scope: QueryScope) -> QueryPlan:
    item, side, kind, method, on, using = read(node, "this", "side", "kind", "method", "on", "using")
    side, kind, method = (str(part or "").upper() for part in (side, kind, method))
    before = list(scope.items)
    right = _item(binder, item, scope)
    after = scope.items[len(before) :]
    conditions: list[Expr] = []
    filters: list[Expr] = []
    names: list[tuple[str, exp.Expr]] = [(name_in(name), name) for name in listed(using)]
    if method == "NATURAL":
        names = [(name, node) for name, _ in scope.columns(before) if scope.sources(name, after)]
        method = ""
        if not names:
            raise refusal(node, "a NATURAL JOIN needs columns of one name on both sides")
    if names:
        conditions = _using(scope, names, before, after, None if kind in ("SEMI", "ANTI") else side, method == "ASOF")
    elif on is not None:
        condition = as_kind(binder.plain_value(on, scope), Kind.BOOLEAN)
        conditions = [part for part in conjuncts([condition], scope.owners()) if not _always(part)]
        filters = [part for part in conditions if has_query(part)]
        if filters and (side or method or kind not in ("", "INNER")):
            raise PlacedError("a subquery in ON is supported in an inner join: join a query that has it in WHERE", filters[0].at)
        conditions = [part for part in conditions if part not in filters]
    if kind in ("SEMI", "ANTI"):
        del scope.items[len(before) :]
    how: str | None = _JOINS.get(side)
    if kind in ("SEMI", "ANTI") and not side:
        how = kind.lower()
    elif kind not in ("", "INNER", "OUTER", "CROSS"):
        how = None
    if how is None or method not in ("", "ASOF") or (method == "ASOF" and how not in ("inner", "left")):
        raise refusal(node, f"{method} {side} {kind} JOIN is not supported".replace("  ", " ").strip())
    if (method == "ASOF" or how in ("semi", "anti")) and free(right) & nodes.ids(left):
        raise refusal(node, "a LATERAL subquery stands in an inner or left join")
    if method == "ASOF":
        return _as_of(left, right, conditions, node, optional=how == "left")
    plan = _beside(left, right, how, tuple(conditions), node)
    return nodes.FilterRows(plan, tuple(filters)) if filters else plan


def _beside(left: QueryPlan, right: QueryPlan, how: str, conditions: tuple[Expr, ...], node: exp.Expr) -> QueryPlan:
    if isinstance(right, nodes.Unnest) and right.input is ONE_ROW:
        if how not in ("inner", "left"):
            raise refusal(node, "UNNEST in FROM has one list, and stands in an inner or left join")
        if conditions and how == "left":
            raise refusal(node, "a LEFT JOIN of UNNEST is ON TRUE")
        unnest = attrs.evolve(right, input=left, optional=how == "left")
        return nodes.FilterRows(unnest, conditions) if conditions else unnest
    if how in ("semi", "anti"):
        return nodes.Mark(left, right, conditions, negated=how == "anti")
    return nodes.JoinRows(left, right, how, conditions, at=node)


def _always(condition: Expr) -> bool:
    return isinstance(condition, Literal) and condition.value is True


def _using(
    scope: QueryScope,
    names: Sequence[tuple[str, exp.Expr]],
    left: Sequence[FromItem],
    right: Sequence[FromItem],
    side: str | None,
    ordered: bool,
) -> list[Expr]:
    """Return the conditions on columns of one name, which are one column from here on; the last may be an order."""
    conditions: list[Expr] = []
    for place, (name, at) in enumerate(names):
        sides = []
        for items in (left, right):
            sources = scope.sources(name, items)
            if not sources:
                raise refusal(at, f"there is no column of this name in {' or '.join(item.name for item in items)}")
            sides.append(scope.only(sources, name, at))
        one, other = sides[0].value(name), sides[1].value(name)
        if side is not None:
            before = sides[0] if isinstance(sides[0], MergedColumn) else MergedColumn(one)
            merged_column = before.joined(other, side.lower())
            for item in (*left, *right):
                if name in item.columns and scope.merged.get((item, name), item) in sides:
                    scope.merged[item, name] = merged_column
        conditions.append(call(">=" if ordered and place == len(names) - 1 else "=", [one, other], at))
    return conditions


def _as_of(left: QueryPlan, right: QueryPlan, conditions: Sequence[Expr], node: exp.Expr, *, optional: bool) -> QueryPlan:
    """Return an as-of join, of equalities and one inequality."""
    one, other = ([ref.id for ref in side.columns] for side in (left, right))
    equal = [condition for condition in conditions if getattr(condition, "name", "") == "="]
    others = [condition for condition in conditions if condition not in equal]
    nearest = sides_of(others[0], one, other, tuple(INEQUALITIES)) if len(others) == 1 else None
    if nearest is None or any(sides_of(condition, one, other, ("=",)) is None for condition in equal):
        raise refusal(node, "an as-of join has equalities and one inequality (>=, >, <= or <), of an expression of each side")
    return nodes.AsOf(left, right, tuple(equal), nearest[:2], nearest[2], optional)


# -- items ---------------------------------------------------------------------------------------------------------


def _item(binder: NameBinder, node: exp.Expr, scope: QueryScope) -> QueryPlan:
    """Return an item, which may read those before it, and its joins."""
    joins = listed(node.args.get("joins"))
    inner = _joined_in(node)
    alias = node.args.get("alias") if inner is not None else None
    if not joins and inner is None:
        return _ITEMS.get(type(node), _unknown)(binder, node, scope)
    nested = QueryScope(scope.around, scope.tables, scope.names if alias is None else set())
    if inner is None:
        plan = _ITEMS.get(type(node), _unknown)(binder, node, nested)
    else:
        read(node, "this", "alias", "joins")
        plan = _item(binder, inner, nested)
    if alias is not None:  # the join has a name, so it is a table of its own
        columns = nested.columns()
        plan = nodes.Project(plan, tuple(NamedExpr(binder.fresh(), each.value(name)) for name, each in columns))
        nested = QueryScope(scope.around, scope.tables, scope.names)
        plan = _named(nested, alias, "", [name for name, _ in columns], plan)
    plan = _joined(binder, plan, joins, nested)
    scope.items += nested.items
    scope.merged.update(nested.merged)
    return plan


def _joined_in(item: exp.Expr) -> exp.Expr | None:
    """Return what stands in the parentheses of an item of ``FROM`` that are a join, or ``None`` for other items."""
    inner = item.this if isinstance(item, exp.Subquery) else None
    joined = isinstance(inner, exp.Table) or (isinstance(inner, exp.Subquery) and (inner.args.get("joins") or _joined_in(inner)))
    return inner if joined else None


def _unknown(binder: NameBinder, node: exp.Expr, scope: QueryScope) -> QueryPlan:
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
        why = f"there is no function {node.this.this} in FROM; files become tables by --input, or by dd.read_table"
        raise refusal(node, why)
    raise refusal(node, "this in FROM is not supported: tables, subqueries, VALUES and UNNEST are")


def _table(binder: NameBinder, node: exp.Table, scope: QueryScope) -> QueryPlan:
    if _is_series(node.this):
        this, alias, _, ordinality = read(node, "this", "alias", "joins", "ordinality")
        return _unnested(binder, this, str(this.this).lower(), alias, ordinality, scope)
    this, alias, _ = read(node, "this", "alias", "joins")
    if isinstance(this, exp.Anonymous) and str(this.this).lower() in _WINDOWS:
        return _in_windows(binder, this, alias, scope)
    if not isinstance(this, exp.Identifier):
        return _unknown(binder, node, scope)
    name = name_in(this)
    rows = scope.tables.get(name)
    if rows is None:
        raise no_table(node, name, scope.tables)
    return _named(scope, alias, name, rows.columns, rows.plan(binder.fresh, node), this)


def no_table(node: exp.Expr, name: str, tables: Iterable[str]) -> SqlError:
    """Return the error for a table that is not there."""
    names = sorted(tables)
    return refusal(node, f"there is no table {name}; there are: {listed_names(names)}{did_you_mean(name, names)}")


def _is_series(function: object) -> bool:
    return isinstance(function, exp.Anonymous) and str(function.this).lower() in _SERIES


def table_in(node: exp.Table) -> str:
    """Return the name of the table of an item of ``FROM``, also of one in a function of windows."""
    of = node.this
    windows = isinstance(of, exp.Anonymous) and str(of.this).lower() in _WINDOWS and of.expressions
    return lower_case(str((of.expressions[0] if windows else node).name))


def _of_query(binder: NameBinder, node: exp.Expr, alias: exp.Expr | None, scope: QueryScope, *, joins: bool) -> QueryPlan:
    query = binder.query(node, scope, scope.tables, joins=joins)
    return _named(scope, alias, "unnamed_subquery", query.names, query.plan)


def _lateral(binder: NameBinder, node: exp.Lateral, scope: QueryScope) -> QueryPlan:
    this, alias, *ordinality = read(node, "this", "alias", *(["ordinality"] if _is_series(node.this) else []))
    if ordinality:
        return _unnested(binder, this, str(this.this).lower(), alias, ordinality[0], scope)
    if isinstance(this, exp.Unnest):
        return _elements(binder, this, node, alias, scope)
    if isinstance(this, exp.Subquery):
        return _of_query(binder, this, alias, scope, joins=False)
    return _unknown(binder, node, scope)


def _values(binder: NameBinder, node: exp.Values, scope: QueryScope) -> QueryPlan:
    rows, alias = read(node, "expressions", "alias")
    bound: list[list[Expr]] = []
    for row in rows:
        parts = read(row, "expressions")[0] if isinstance(row, exp.Tuple) else [row]
        bound.append([binder.plain_value(part, scope) for part in parts])
        for value in bound[-1]:
            if ids_in(value) or has_query(value):
                raise PlacedError("no such column here; VALUES has no columns to read", value.at)
    names = [f"col{place}" for place in range(len(bound[0]))]
    kinds = [value.kind for value in bound[0]]
    try:
        for values in bound[1:]:
            kinds = list(merged(kinds, [value.kind for value in values], names))
    except SqlError as error:
        raise placed(error, node) from None
    refs = tuple(Ref(kind, binder.fresh()) for kind in kinds)
    converted = tuple(tuple(map(as_kind, values, kinds)) for values in bound)
    return _named(scope, alias, "valueslist", names, nodes.ConstantRows(converted, refs))


def _elements(binder: NameBinder, node: exp.Unnest, item: exp.Expr, alias: exp.Expr | None, scope: QueryScope) -> QueryPlan:
    lists, _, offset = read(node, "expressions", "alias", "offset")
    if len(lists) != 1:
        raise refusal(item, "UNNEST in FROM has one list, and stands in an inner or left join")
    return _unnested(binder, lists[0], "unnest", alias, offset, scope)


_WINDOWS: Final = {
    "tumble": """select *, time_bucket(p2, p1) as window_start, time_bucket(p2, p1) + p2 as window_end
        from p0 where p1 is not null""",
    "hop": """select * exclude "\0start", "\0start" as window_start, "\0start" + p3 as window_end from (
        select *, unnest(generate_series(time_bucket(p2, p1 - p3) + p2, time_bucket(p2, p1), p2)) as "\0start" from p0) as p0
        where p1 < "\0start" + p3""",
    "sessions": """select * exclude ("\0first", "\0number"), min(p1) over w as window_start, max(p1) over w + p2 as window_end
        from (select *, count(*) filter (where "\0first") over (partition by keys order by p1) as "\0number" from (
            select *, coalesce(p1 > lag(p1) over (partition by keys order by p1) + p2, true) as "\0first"
            from p0 where p1 is not null) as p0) as p0 window w as (partition by keys, "\0number")""",
}
"""Functions of a table, p0, and a moment, p1: what they are as queries. Windows of ``hop`` begin every p2, and are p3 long."""


def _in_windows(binder: NameBinder, node: exp.Anonymous, alias: exp.Expr | None, scope: QueryScope) -> QueryPlan:
    """Return the rows of a table with the windows of time that they are in."""
    written, parts = read(node, "this", "expressions")
    name, table = str(written).lower(), parts[0] if parts else None
    count = 4 if name == "hop" else 3
    if not isinstance(table, exp.Column) or len(parts) < count or (len(parts) > count and name != "sessions"):
        raise refusal(node, f"it is {name}(table, moment, {_FORMS[name]})")
    query: Any = maybe_parse(_WINDOWS[name], dialect=WRITTEN)
    for column in list(query.find_all(exp.Column, exp.Identifier)):
        place = column.name.removeprefix("p")
        if isinstance(column, exp.Identifier):
            if place == "0":
                column.set("this", identifier(table))
        elif column.name == "keys":
            keys = [key.copy() for key in parts[count:]] or [exp.Literal.string("")]
            around = column.parent
            around.set("partition_by", [*keys, *around.args["partition_by"][1:]])
        elif place.isdecimal():
            column.replace(parts[int(place)].copy())
    query.parent = node
    bound = binder.query(query, scope, scope.tables)
    if len(set(bound.names)) < len(bound.names):
        raise refusal(table, "it has a column window_start or window_end already: give it another name first")
    return _named(scope, alias, name, bound.names, bound.plan)


_FORMS: Final = {
    "hop": "step, length), such as hop(bids, at, interval 1 minute, interval 10 minutes",
    "tumble": "length), such as tumble(bids, at, interval 10 minutes",
    "sessions": "gap, keys), such as sessions(bids, at, interval 10 minutes, bidder",
}

_SERIES: Final = ("generate_series", "range", "json_each")
"""Functions of which ``FROM`` reads the elements."""


def _unnested(binder: NameBinder, node: exp.Expr, name: str, alias: exp.Expr | None, offset: Any, scope: QueryScope) -> QueryPlan:
    """Return the elements of a list, or what ``json_each`` has, and their numbers where there is an ``offset``."""
    names, functions = [name], [node]
    if name == "json_each":
        names = [*EACH]
        functions = [node.copy() for _ in EACH]
        for function, each in zip(functions, EACH):
            function.set("this", f"json_each {each}")
    lists = tuple([binder.plain_value(function, scope) for function in functions])
    elements = [Ref(element_of(values, node), binder.fresh()) for values in lists]
    if offset:
        elements.append(Ref(Kind.INTEGER, binder.fresh()))
        names.append(name_in(offset) if isinstance(offset, exp.Identifier) else "ordinality")
    return _named(scope, alias, name, names, nodes.Unnest(ONE_ROW, lists, tuple(elements)))


_ITEMS: Final[dict[Any, Callable[[NameBinder, Any, QueryScope], QueryPlan]]] = {
    exp.Table: _table,
    exp.Subquery: lambda binder, node, scope: _of_query(binder, node, node.args.get("alias"), scope, joins=True),
    exp.Lateral: _lateral,
    exp.Values: _values,
    exp.Unnest: lambda binder, node, scope: _elements(binder, node, node, node.args.get("alias"), scope),
}


def _named(
    scope: QueryScope, alias: exp.Expr | None, name: str, columns: Sequence[str], plan: QueryPlan, table: exp.Expr | None = None
) -> QueryPlan:
    """Give an item of FROM its name, and names to its columns; return its plan."""
    this, written = (None, None) if alias is None else read(alias, "this", "columns")
    this = table if this is None else this
    if this is not None:
        name = name_in(this)
        if name in scope.names:
            raise refusal(this, "there are two of this table here: rename one")
        scope.names.add(name)
    names = renamed(listed(written), columns)
    refs = plan.columns[-len(names) :] if isinstance(plan, nodes.Unnest) else plan.columns
    scope.items.append(FromItem(name, dict(zip(names, refs, strict=True))))
    return plan


def renamed(written: Sequence[exp.Expr], columns: Sequence[str]) -> Sequence[str]:
    """Return the names that the columns of an item have: those that it gives them first, and each only once."""
    if len(written) > len(columns):
        raise refusal(written[len(columns)], f"the names are more than the {len(columns)} columns")
    return distinct_names([*(name_in(name) for name in written), *columns[len(written) :]])
