"""Translation: a qualified tree of sqlglot becomes operators on collections, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.dataflow import ScopeBuilder
from timely.differential.collections import Collection
from timely.differential.loops import Variable
from timely.differential.tables.groups import aggregates_in, empty_group, grouped
from timely.differential.tables.kinds import Column, Kind, common, conversion
from timely.differential.tables.refusals import only, refusal
from timely.differential.tables.relation import Relation, beside, constant, entered, projected
from timely.differential.tables.scalar_compiler import NameScope, Row, Scalar, compile_condition, compile_scalar
from timely.differential.tables.sorting import first_rows, sort_key
from timely.differential.tables.table_joins import (
    columns_in,
    filtered,
    join,
    match_of,
    matched,
    matches,
    unmatched,
)
from timely.differential.tables.window_functions import windows_in, with_windows

Names = Mapping[str, Relation]


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the conditions that must all be true for ``node`` to be."""
    if node is None:
        return
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    elif isinstance(node, exp.Paren | exp.Where | exp.Having | exp.Qualify):
        yield from conjuncts(node.this)
    else:
        yield node


def has_query(node: exp.Expr) -> bool:
    """Return whether an expression has a subquery."""
    return node.find(exp.Query) is not None


def translate(node: exp.Expr, scope: ScopeBuilder[Any], names: Names) -> Relation:
    """Return the relation of a query in ``scope``; ``names`` are the tables that it may read."""
    if isinstance(node, exp.Subquery):
        only(node, "this", "alias", "with_")
        return translate(node.this, scope, names)
    if not isinstance(node, exp.Select | exp.SetOperation):
        raise refusal(node, f"{node.key.upper()} is not a query that a view can be")
    names = _with(node, scope, names)
    if isinstance(node, exp.SetOperation):
        return _set_operation(node, scope, names)
    return _Select(scope, names).translate(node)


# -- WITH ----------------------------------------------------------------------------------------------------------


def _with(node: exp.Expr, scope: ScopeBuilder[Any], names: Names) -> Names:
    clause = node.args.get("with_")
    if clause is None:
        return names
    only(clause, "expressions", "recursive")
    found = dict(names)
    for cte in clause.expressions:
        only(cte, "this", "alias", "materialized")
        if clause.args.get("recursive") and _references(cte.this, cte.alias):
            found[cte.alias] = _recursive(cte, scope, found)
        else:
            found[cte.alias] = _renamed(translate(cte.this, scope, found), _alias_columns(cte))
    return found


def _alias_columns(node: exp.Expr) -> list[str]:
    alias = node.args.get("alias")
    return [column.name for column in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []


def _renamed(relation: Relation, names: Sequence[str]) -> Relation:
    columns = tuple(
        attrs.evolve(column, name=names[index]) if index < len(names) else column for index, column in enumerate(relation.columns)
    )
    return Relation(relation.collection, columns)


def _references(node: exp.Expr, name: str) -> list[exp.Table]:
    return [table for table in node.find_all(exp.Table) if table.name == name and not table.args.get("db")]


def _recursive(cte: exp.Expr, scope: ScopeBuilder[Any], names: Names) -> Relation:
    """Return the limit of a recursive query, in a loop: of the sum of the base and one step."""
    body, name = cte.this, cte.alias
    if type(body) is not exp.Union or _references(body.this, name):
        raise refusal(cte, "a recursive query is base UNION [ALL] step, and only the step reads it")
    only(body, "this", "expression", "distinct", "with_")
    names = _with(body, scope, names)
    distinct = bool(body.args.get("distinct"))
    _check_step(body.expression, name, distinct)
    base = _renamed(translate(body.this, scope, names), _alias_columns(cte))
    columns = tuple(attrs.evolve(column, nullable=True) for column in base.columns)
    with scope.iterative("recursive") as loop:
        variable: Variable[Any, Any] = Variable(loop)
        step = translate(body.expression, loop, {**names, name: Relation(variable.collection, columns)})
        rows = entered(base.collection, loop).concat(_as_kinds(step, columns, body.expression, exact=True))
        rows = rows.distinct() if distinct else rows.consolidate()
        return Relation(variable.set(rows).leave(), columns)


def _check_step(step: exp.Expr, name: str, distinct: bool) -> None:
    """Refuse steps for which the limit is not what SQL computes row set by row set: those that are not linear."""
    found = _references(step, name)
    if len(found) != 1:
        raise refusal(found[1], f"{name} stands more than once in its own step")
    node: exp.Expr = found[0]
    while node is not step:
        parent = node.parent
        assert parent is not None
        if isinstance(parent, exp.Join):
            _check_recursive_join(node, parent, found[0])
        _check_linear(parent, found[0], distinct)
        node = parent
    _check_linear(step, found[0], distinct)


def _check_recursive_join(node: exp.Expr, parent: exp.Expr, found: exp.Expr) -> None:
    side, kind = str(parent.args.get("side") or "").upper(), str(parent.args.get("kind") or "").upper()
    if side not in ("", "RIGHT") or kind in ("SEMI", "ANTI"):
        raise refusal(found, f"recursion through the optional side of a {side or kind} JOIN is not monotone")


def _check_linear(node: exp.Expr, found: exp.Expr, distinct: bool) -> None:
    if isinstance(node, exp.CTE):
        raise refusal(found, "recursion through a WITH of the step is not supported")
    if isinstance(node, exp.Except | exp.Intersect) or type(node) in (exp.Exists, exp.In):
        raise refusal(found, f"recursion through {node.key.upper()} is not supported")
    if isinstance(node, exp.Union) and node.args.get("distinct") and not distinct:
        raise refusal(found, "recursion by UNION ALL through UNION is not supported")
    if isinstance(node, exp.Subquery) and not isinstance(node.parent, exp.From | exp.Join | exp.SetOperation):
        raise refusal(found, "recursion through a scalar subquery is not supported")
    if not isinstance(node, exp.Select):
        return
    if node.args.get("group") or node.args.get("having") or aggregates_in(node.expressions):
        raise refusal(found, "aggregation through recursion is not stratified")
    if node.args.get("limit") or node.args.get("offset"):
        raise refusal(found, "LIMIT through recursion is not supported")
    if node.args.get("distinct") and not distinct:
        raise refusal(found, "recursion by UNION ALL through DISTINCT is not supported")
    for other in node.args.get("joins") or []:
        # the recursive table stands before this join, which keeps rows of its own when nothing matches, or counts what is missing
        if str(other.args.get("side") or "").upper() in ("RIGHT", "FULL") and found not in list(other.walk()):
            raise refusal(found, "recursion through the optional side of a join is not monotone")


# -- set operations ------------------------------------------------------------------------------------------------


def _as_kinds(relation: Relation, columns: Sequence[Column], node: exp.Expr, exact: bool = False) -> Collection[Any, Row]:
    """Return the rows with values of the kinds of ``columns``."""
    if len(relation.columns) != len(columns):
        raise refusal(node, f"it has {len(relation.columns)} columns, and the other side has {len(columns)}")
    conversions: list[Callable[[Any], Any] | None] = []
    for column, target in zip(relation.columns, columns):
        convert = conversion(column.kind, target.kind)
        if convert is None or (exact and column.kind not in (target.kind, Kind.NULL)):
            raise refusal(node, f"column {column.name!r} is {column.kind.value} here and {target.kind.value} there: cast one")
        conversions.append(None if column.kind in (target.kind, Kind.NULL) else convert)
    if not any(conversions):
        return relation.collection
    return relation.collection.map(
        lambda row: tuple(
            value if convert is None or value is None else convert(value) for value, convert in zip(row, conversions)
        )
    )


def _merged(left: Relation, right: Relation, node: exp.Expr) -> tuple[Column, ...]:
    if len(left.columns) != len(right.columns):
        raise refusal(node, f"one side has {len(left.columns)} columns, the other {len(right.columns)}")
    columns = []
    for one, other in zip(left.columns, right.columns):
        kind = common(one.kind, other.kind)
        if kind is None:
            raise refusal(node, f"column {one.name!r} is {one.kind.value} and {other.kind.value}: cast one")
        columns.append(Column(one.name, kind, one.nullable or other.nullable))
    return tuple(columns)


def _set_operation(node: exp.Expr, scope: ScopeBuilder[Any], names: Names) -> Relation:
    only(node, "this", "expression", "distinct", "with_", "order", "limit", "offset")
    left, right = translate(node.this, scope, names), translate(node.expression, scope, names)
    columns = _merged(left, right, node)
    one, other = _as_kinds(left, columns, node), _as_kinds(right, columns, node)
    relation = Relation(combined(node, one, other), columns)
    return _limited(node, relation, _output_places(columns))


def combined(node: exp.Expr, one: Collection[Any, Any], other: Collection[Any, Any]) -> Collection[Any, Any]:
    """Return the union, difference or intersection of rows, as bags or as sets."""
    distinct = bool(node.args.get("distinct"))
    if isinstance(node, exp.Union):
        rows = one.concat(other)
        return rows.distinct() if distinct else rows
    if distinct:
        left = one.distinct().map(lambda row: (row, None))
        keys = other.distinct()
        chosen = left.semijoin(keys) if isinstance(node, exp.Intersect) else left.antijoin(keys)
        return chosen.map(lambda pair: pair[0])
    more = one.minus(other).threshold(_count)
    return more if isinstance(node, exp.Except) else one.minus(more)


def _count(row: Row, count: int) -> int:
    return count


# -- ORDER BY and LIMIT --------------------------------------------------------------------------------------------


def _output_places(columns: Sequence[Column]) -> dict[exp.Expr, int]:
    places: dict[exp.Expr, int] = {}
    for index, column in enumerate(columns):
        places.setdefault(exp.column(column.name), index)
    return places


def _number(node: exp.Expr | None, name: str) -> int:
    if node is None:
        return 0
    only(node, "expression")
    value = node.expression
    while isinstance(value, exp.Paren):
        value = value.this
    if not isinstance(value, exp.Literal) or not str(value.this).isdigit():
        raise refusal(node, f"{name} takes a literal whole number")
    return int(str(value.this))


def _whole(row: Row) -> Any:
    return ()


def _limited(node: exp.Expr, relation: Relation, places: Mapping[exp.Expr, int]) -> Relation:
    """Return the first rows in an order; an order alone changes nothing."""
    order, limit, offset = node.args.get("order"), node.args.get("limit"), node.args.get("offset")
    orders = [] if order is None else order.expressions
    if order is not None:
        only(order, "expressions")
    width = len(relation.columns)
    if limit is None and offset is None:
        if orders:
            sort_key(orders, NameScope(relation.columns, places), width)  # for what it refuses
        return relation
    if not orders:
        raise refusal(limit or offset or node, "LIMIT and OFFSET need ORDER BY: which rows come first is unspecified")
    key = sort_key(orders, NameScope(relation.columns, places), width)
    skipped = _number(offset, "OFFSET")
    rows = relation.collection
    if limit is not None:
        k = _number(limit, "LIMIT")
        chosen = first_rows(rows, _whole, key, skipped + k) if skipped + k else rows.filter(_nothing)
    else:
        chosen = rows
    if skipped:
        chosen = chosen.minus(first_rows(rows, _whole, key, skipped))
    return relation.with_collection(chosen)


def _nothing(row: Row) -> bool:
    return False


# -- SELECT --------------------------------------------------------------------------------------------------------

_CLAUSES: Final = (
    *("expressions", "from_", "joins", "where", "group", "having", "windows", "qualify"),
    *("order", "limit", "offset", "distinct", "with_"),
)
_JOINS: Final = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@attrs.define
class _Select:
    """The translation of one ``SELECT``: in ``scope``, of the tables ``names``."""

    scope: ScopeBuilder[Any]
    names: Names

    def translate(self, node: exp.Expr) -> Relation:
        only(node, *_CLAUSES)
        relation = self.source(node, list(conjuncts(node.args.get("where"))))
        outputs, orders = list(node.expressions), []
        order = node.args.get("order")
        if order is not None:
            orders = [ordered.this for ordered in order.expressions]
        having = list(conjuncts(node.args.get("having")))
        qualify = list(conjuncts(node.args.get("qualify")))
        group = node.args.get("group")
        aggregates = aggregates_in([*outputs, *having, *qualify, *orders])
        if group is not None or aggregates or having:
            keys: list[exp.Expr] = []
            if group is not None:
                only(group, "expressions")
                keys = [_unwrapped(key) for key in group.expressions]
            relation = grouped(self.with_subqueries(relation, [*keys, *aggregates]), keys, aggregates)
            relation = self.filtered(relation, having)
        windows = windows_in([*outputs, *qualify, *orders])
        relation = with_windows(self.with_subqueries(relation, windows), windows, node.args.get("windows") or [])
        relation = self.filtered(relation, qualify)
        return self.projected(node, relation, outputs)

    def projected(self, node: exp.Expr, relation: Relation, outputs: Sequence[exp.Expr]) -> Relation:
        """Return the selected columns: distinct, ordered and limited."""
        values = [output.this if isinstance(output, exp.Alias) else output for output in outputs]
        for value in values:
            if value.is_star:
                raise refusal(value, "* has no columns here")
        relation = self.with_subqueries(relation, values)
        found = [compile_scalar(value, relation.scope) for value in values]
        columns = [Column(output.alias_or_name, scalar.kind, scalar.nullable) for output, scalar in zip(outputs, found)]
        places = _output_places(columns)
        for index, value in enumerate(values):
            places.setdefault(value, index)
        width = len(columns)
        distinct = node.args.get("distinct")
        if distinct is not None:
            only(distinct)
        hidden: list[Scalar] = []
        order = node.args.get("order")
        limited = node.args.get("limit") is not None or node.args.get("offset") is not None
        if order is not None and limited and distinct is None:
            for ordered in order.expressions:  # orders by what is not selected go along, and are dropped afterwards
                part = ordered.this
                if part not in places and not isinstance(part, exp.Literal):
                    names = [column for column in part.find_all(exp.Column) if not column.table]
                    scalar = compile_scalar(_with_outputs(part, outputs) if names else part, relation.scope)
                    places[part] = width + len(hidden)
                    hidden.append(scalar)
        rows = projected(relation.collection, [*found, *hidden])
        if distinct is not None:
            rows = rows.distinct()
        if not limited:  # an order alone changes nothing
            return Relation(rows, tuple(columns))
        extra = [Column(f"order{index}", scalar.kind, scalar.nullable) for index, scalar in enumerate(hidden)]
        result = _limited(node, Relation(rows, (*columns, *extra)), places)
        rows = result.collection.map(lambda row: row[:width]) if hidden else result.collection
        return Relation(rows, tuple(columns))

    # -- FROM and WHERE --------------------------------------------------------------------------------------------

    def source(self, node: exp.Expr, conditions: list[exp.Expr]) -> Relation:
        """Return the rows of FROM and its joins for which the conditions of WHERE are true."""
        clause = node.args.get("from_")
        joins = list(node.args.get("joins") or [])
        if clause is None:
            relation = Relation(constant(self.scope, [()]), ())
            return self.filtered(relation, conditions)
        only(clause, "this")
        sides = {str(other.args.get("side") or "").upper() for other in joins}
        left = list(conditions)
        early = not sides & {"RIGHT", "FULL"}  # those bring rows that conditions must see after the join

        def ready(relation: Relation) -> list[exp.Expr]:
            found = [
                condition
                for condition in left
                if early and not has_query(condition) and columns_in(condition) and columns_in(condition) <= relation.tables
            ]
            left[:] = [condition for condition in left if condition not in found]
            return found

        relation = self.item(clause.this)
        relation = self.filtered(relation, ready(relation))
        for other in joins:
            relation = self.joined(relation, other, ready)
        return self.filtered(relation, left)

    def joined(self, relation: Relation, node: exp.Expr, ready: Callable[[Relation], list[exp.Expr]]) -> Relation:
        """Return one more join."""
        only(node, "this", "side", "kind", "on")
        side, kind = str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()
        how = _JOINS.get(side)
        if kind in ("SEMI", "ANTI") and not side:
            how = kind.lower()
        elif kind not in ("", "INNER", "OUTER", "CROSS"):
            how = None
        if how is None:
            raise refusal(node, f"{side} {kind} JOIN is not supported".replace("  ", " "))
        other = self.item(node.this)
        if other.tables & relation.tables:
            raise refusal(node, "two tables of one name: give one an alias")
        conditions = list(conjuncts(node.args.get("on")))
        for condition in conditions:
            if has_query(condition):
                raise refusal(condition, "a subquery in ON is not supported: put it into WHERE")
        if how == "inner":
            other = self.filtered(other, ready(other))
            conditions += ready(beside(relation, other, relation.collection))
        conditions = [condition for condition in conditions if not _always(condition)]
        return join(relation, other, conditions, how)

    def item(self, node: exp.Expr) -> Relation:
        """Return a table, a subquery or a list of rows of FROM."""
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            only(node, "this", "alias")
            found = self.names.get(node.name)
            if found is None:
                raise refusal(node, f"there is no table {node.name!r}; there are {', '.join(sorted(self.names)) or 'none'}")
            rows = entered(found.collection, self.scope)
            return found.with_collection(rows).named(node.alias_or_name, _alias_columns(node))
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias")
            return translate(node.this, self.scope, self.names).named(node.alias, _alias_columns(node))
        if isinstance(node, exp.Values):
            only(node, "expressions", "alias")
            return self.rows(node).named(node.alias, _alias_columns(node))
        raise refusal(node, f"{node.key.upper()} in FROM is not supported: tables, subqueries and VALUES are")

    def rows(self, node: exp.Expr) -> Relation:
        """Return the rows of VALUES."""
        kinds: list[Column] = []
        parts: list[Relation] = []
        for values in node.expressions:
            found = [compile_scalar(value, NameScope((), {})) for value in (values.expressions or [values])]
            columns = tuple(Column(f"col{index}", scalar.kind, scalar.nullable) for index, scalar in enumerate(found))
            part = Relation(constant(self.scope, [tuple(scalar.function(()) for scalar in found)]), columns)
            kinds = list(columns) if not parts else list(_merged(Relation(part.collection, tuple(kinds)), part, node))
            parts.append(part)
        rows = [_as_kinds(part, kinds, node) for part in parts]
        return Relation(rows[0].concat(*rows[1:]), tuple(kinds))

    def filtered(self, relation: Relation, conditions: Sequence[exp.Expr]) -> Relation:
        """Return the rows for which all conditions are true."""
        for condition in conditions:
            if has_query(condition):
                chosen = self.subquery_condition(relation, condition)
                if chosen is not None:
                    relation = relation.with_collection(chosen)
                    continue
                width = len(relation.columns)
                wider = self.with_subqueries(relation, [condition])
                rows = filtered(wider.collection, [compile_condition(condition, wider.scope)])
                relation = relation.with_collection(rows.map(lambda row, width=width: row[:width]))  # type: ignore[misc]
                continue
            rows = filtered(relation.collection, [compile_condition(condition, relation.scope)])
            relation = _known(relation.with_collection(rows), condition)
        return relation

    # -- subqueries ------------------------------------------------------------------------------------------------

    def subquery_condition(self, relation: Relation, condition: exp.Expr) -> Collection[Any, Row] | None:
        """Return the rows for which ``[NOT] EXISTS`` or ``[NOT] IN`` is true, or ``None`` for other conditions."""
        negated = False
        while isinstance(condition, exp.Not | exp.Paren):
            negated = negated is not isinstance(condition, exp.Not)
            condition = condition.this
        if not _is_membership(condition):
            return None
        other, conditions = self.membership(relation, condition, negated)
        match = match_of(relation, other, conditions)
        return unmatched(relation, other, match) if negated else matched(relation, other, match)

    def membership(self, relation: Relation, node: exp.Expr, unknown: bool) -> tuple[Relation, list[exp.Expr]]:
        """Return the rows that ``EXISTS`` or ``IN`` looks through, and how they match those of ``relation``.

        ``unknown``: where the answer may be unknown, that would be told from false, so ``NULL`` is refused.
        """
        if isinstance(node, exp.Exists):
            only(node, "this")
            query = _query_in(node.this)
            other, conditions, _ = self.correlated(relation, query, node)
            return other, conditions
        only(node, "this", "query")
        query = _query_in(node.args["query"])
        if has_query(node.this):
            raise refusal(node, "a subquery on the left of IN is not supported")
        if len(query.selects) != 1 or isinstance(node.this, exp.Tuple):
            raise refusal(node, "IN takes one expression, and a query of one column")
        other, conditions, value = self.correlated(relation, query, node)
        asked = compile_scalar(node.this, relation.scope)
        offered = compile_scalar(value, other.scope)
        if unknown and (asked.nullable or offered.nullable):
            which = "the expression on its left" if asked.nullable else "the column of its query"
            raise refusal(
                node, f"{which} may be NULL, which makes NOT IN unknown: use NOT EXISTS, or columns that are not nullable"
            )
        return other, [*conditions, exp.EQ(this=node.this, expression=value)]

    def correlated(self, relation: Relation, query: exp.Query, node: exp.Expr) -> tuple[Relation, list[exp.Expr], exp.Expr]:
        """Return a subquery's rows, those of its conditions that read ``relation``, and its first output."""
        where = list(conjuncts(query.args.get("where"))) if isinstance(query, exp.Select) else []
        inner = _tables_of(query)
        outer = [part for part in where if columns_in(part) & relation.tables - inner]
        if not outer:
            found = translate(query, self.scope, self.names)
            name = _fresh(relation)
            columns = [f"c{index}" for index in range(len(found.columns))]
            return found.named(name, columns), [], exp.column("c0", name)
        self.check_plain(query, node)
        if inner & relation.tables:
            raise refusal(node, "a correlated subquery needs aliases of its own for its tables")
        rest = [part for part in where if part not in outer]
        names = _with(query, self.scope, self.names)
        found = _Select(self.scope, names).source(query, rest)
        value = query.selects[0]
        return found, outer, value.this if isinstance(value, exp.Alias) else value

    def check_plain(self, query: exp.Expr, node: exp.Expr) -> None:
        """Refuse a correlated subquery that does more than select."""
        if not isinstance(query, exp.Select):
            raise refusal(node, "a correlated subquery must be a SELECT")
        only(query, "expressions", "from_", "joins", "where", "with_", "distinct", "order")
        if query.args.get("distinct") is not None:
            only(query.args["distinct"])
        if aggregates_in(query.expressions):
            raise refusal(node, "a correlated subquery with aggregates is not supported here")

    def with_subqueries(self, relation: Relation, nodes: Sequence[exp.Expr]) -> Relation:
        """Return the relation with a column more for each subquery in expressions."""
        for node in nodes:
            places = relation.places
            for part in list(node.walk(prune=lambda inner, places=places: _stands_alone(inner, places))):  # type: ignore[misc]
                if part in relation.places:
                    continue
                if _is_membership(part):
                    relation = self.marked(relation, part)
                elif isinstance(part, exp.Subquery):
                    relation = self.scalar(relation, part)
        return relation

    def marked(self, relation: Relation, node: exp.Expr) -> Relation:
        """Return the relation with a column that says whether ``EXISTS`` or ``IN`` is true."""
        other, conditions = self.membership(relation, node, unknown=True)
        match = match_of(relation, other, conditions)
        found = matched(relation, other, match)
        rows = found.map(lambda row: (*row, True)).concat(relation.collection.minus(found).map(lambda row: (*row, False)))
        return relation.extended(rows, [Column("mark", Kind.BOOLEAN, False)], [node])

    def scalar(self, relation: Relation, node: exp.Expr) -> Relation:
        """Return the relation with a column that is the value of a scalar subquery."""
        query = _query_in(node)
        if not isinstance(query, exp.Select) or query.args.get("group") or not aggregates_in(query.expressions):
            raise refusal(node, "a scalar subquery is supported where it is an aggregate without GROUP BY: it has one row")
        if len(query.expressions) != 1:
            raise refusal(node, "a scalar subquery has one column")
        inner = _tables_of(query)
        where = list(conjuncts(query.args.get("where")))
        outer = [part for part in where if columns_in(part) & relation.tables - inner]
        if not outer:
            found = translate(query, self.scope, self.names)
            pairs = relation.collection.map(lambda row: ((), row))
            rows = pairs.join_map(found.collection.map(lambda row: ((), row)), lambda key, row, more: row + more)
            return relation.extended(rows, found.columns, [node])
        if inner & relation.tables:
            raise refusal(node, "a correlated subquery needs aliases of its own for its tables")
        only(query, "expressions", "from_", "joins", "where", "with_")
        rest = [part for part in where if part not in outer]
        source = _Select(self.scope, _with(query, self.scope, self.names)).source(query, rest)
        return self.correlated_aggregate(relation, node, query, source, outer)

    def correlated_aggregate(
        self,
        relation: Relation,
        node: exp.Expr,
        query: exp.Query,
        source: Relation,
        outer: Sequence[exp.Expr],
    ) -> Relation:
        """Return the relation with an aggregate of the rows of ``source`` that match: they are grouped by what must be equal."""
        keys: list[exp.Expr] = []
        for condition in outer:
            one, other = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else (None, None)
            inner = next((side for side in (one, other) if side is not None and columns_in(side) <= source.tables), None)
            if inner is None or has_query(condition):
                raise refusal(condition, "what correlates a scalar subquery must be an equality of an inner and an outer value")
            keys.append(inner)
        value = query.selects[0]
        value = value.this if isinstance(value, exp.Alias) else value
        aggregates = aggregates_in([value])
        groups = grouped(source, keys, aggregates)
        scalar = compile_scalar(value, groups.scope)
        empty = compile_scalar(value, NameScope(groups.columns, groups.places)).function(
            (None,) * len(keys) + empty_group(source, aggregates)
        )
        rows = groups.collection.map(lambda row: (*row, scalar.function(row)))
        found = groups.extended(rows, [Column("value", scalar.kind)], [exp.column("value", _fresh(relation))])
        match = match_of(relation, found, outer)
        width = len(relation.columns)
        present = matches(relation, found, match).map(lambda row: (*row[:width], row[-1]))
        absent = unmatched(relation, found, match).map(lambda row: (*row, empty))
        return relation.extended(present.concat(absent), [Column("value", scalar.kind)], [node])


def _stands_alone(node: exp.Expr, places: Mapping[exp.Expr, int]) -> bool:
    return node in places or isinstance(node, exp.Query) or _is_membership(node)


def _is_membership(node: exp.Expr) -> bool:
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def _query_in(node: exp.Expr) -> exp.Query:
    found = _unwrapped(node)
    if not isinstance(found, exp.Query):
        raise refusal(node, "this is not a query")
    return found


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Subquery) and not node.args.get("with_")):
        node = node.this
    return node


def _tables_of(query: exp.Expr) -> set[str]:
    """Return the names that tables and subqueries have inside a query."""
    return {item.alias_or_name for item in query.find_all(exp.Table, exp.Subquery, exp.Values) if item is not query}


def _fresh(relation: Relation) -> str:
    return f"subquery {len(relation.columns)}"


def _always(condition: exp.Expr) -> bool:
    return isinstance(condition, exp.Boolean) and bool(condition.this)


def _known(relation: Relation, condition: exp.Expr) -> Relation:
    """Return the relation, where a column that a condition says is not NULL is known not to be."""
    if not (
        isinstance(condition, exp.Not) and isinstance(condition.this, exp.Is) and isinstance(condition.this.expression, exp.Null)
    ):
        return relation
    place = relation.places.get(condition.this.this)
    if place is None:
        return relation
    columns = list(relation.columns)
    columns[place] = attrs.evolve(columns[place], nullable=False)
    return attrs.evolve(relation, columns=tuple(columns))


def _with_outputs(node: exp.Expr, outputs: Sequence[exp.Expr]) -> exp.Expr:
    """Return an expression of ORDER BY with the names of outputs replaced by what they are."""
    values = {output.alias_or_name: output.this if isinstance(output, exp.Alias) else output for output in outputs}

    def replaced(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and not part.table and part.name in values:
            return values[part.name].copy()
        return part

    return node.copy().transform(replaced)
