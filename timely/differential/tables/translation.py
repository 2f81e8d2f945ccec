"""Translation: a qualified tree of sqlglot becomes operators on collections, or is refused.

A subquery that reads columns of the rows around it is translated once for all of them. Its *domain* is the collection of the
distinct values of these columns. Its rows carry a row of the domain in front, and whatever groups, orders or limits them does so
for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.dataflow import ScopeBuilder
from timely.differential.collections import Collection
from timely.differential.iteration import Variable
from timely.differential.tables.expressions.column_stages import condition_of, filtered, minus, projected, pruned
from timely.differential.tables.expressions.join_order import by_equalities, columns_in, conjuncts
from timely.differential.tables.expressions.relation import HIDDEN, Relation, beside, constant, entered, hidden, output_column
from timely.differential.tables.expressions.scalar_compiler import NameScope, Row, Scalar, compile_scalar
from timely.differential.tables.expressions.tree_nodes import has_query
from timely.differential.tables.names.correlation import (
    equal_to_outer,
    is_plain,
    outer_columns,
    outer_conditions,
    query_in,
    rows_at_most,
)
from timely.differential.tables.names.recursion import check_step, references
from timely.differential.tables.operators.asof_joins import asof_join
from timely.differential.tables.operators.grouping_sets import grouped_by_sets, key_sets
from timely.differential.tables.operators.groups import aggregates_in, empty_group, grouped
from timely.differential.tables.operators.set_operations import as_kinds, combined, merged
from timely.differential.tables.operators.sorting import first_rows, sort_key
from timely.differential.tables.operators.table_joins import (
    join,
    match_of,
    matched,
)
from timely.differential.tables.operators.unnesting import joined_elements, unnest_of, unnested, unnests_in
from timely.differential.tables.operators.window_functions import windows_in, with_windows
from timely.differential.tables.values.kinds import Column, Kind
from timely.differential.tables.values.refusals import only, refusal
from timely.differential.tables.values.written_calls import bare
from timely.errors import SqlError

Names = Mapping[str, Relation]


def translate(node: exp.Expr, scope: ScopeBuilder[Any], names: Names, domain: Relation | None = None) -> Relation:
    """Return the relation of a query in ``scope``; ``names`` are the tables that it may read.

    With a ``domain``, whose columns it may read too, its rows are those for each row of the domain, behind that row.
    """
    if isinstance(node, exp.Subquery):
        only(node, "this", "alias", "with_")
        return translate(node.this, scope, _with(node, scope, names, domain), domain)
    if not isinstance(node, exp.Select | exp.SetOperation):
        raise refusal(node, "this is not a query that a view can be")
    names = _with(node, scope, names, domain)
    if isinstance(node, exp.SetOperation):
        return _set_operation(node, scope, names, domain)
    return _Select(scope, names, domain).translate(node)


def _width(domain: Relation | None) -> int:
    return 0 if domain is None else len(domain.columns)


# -- WITH ----------------------------------------------------------------------------------------------------------


def _with(node: exp.Expr, scope: ScopeBuilder[Any], names: Names, domain: Relation | None = None) -> Names:
    clause = node.args.get("with_")
    if clause is None:
        return names
    tables = dict(names)
    for cte in clause.expressions:
        if domain is not None and outer_columns(cte.this, domain):
            raise refusal(cte, "WITH of a correlated subquery reads no columns from outside: put the query into FROM")
        if clause.args.get("recursive") and references(cte.this, cte.alias):
            tables[cte.alias] = _recursive(cte, scope, tables)
        else:
            tables[cte.alias] = _renamed(translate(cte.this, scope, tables), cte)
    return tables


def _alias_columns(node: exp.Expr) -> list[str]:
    """Return the names that an item gives to its first columns."""
    alias = node.args.get("alias")
    columns = (alias.args.get("columns") or []) if isinstance(alias, exp.TableAlias) else []
    return [column.name for column in columns]


def _renamed(relation: Relation, node: exp.Expr) -> Relation:
    names = _alias_columns(node)
    columns = tuple(
        attrs.evolve(column, name=names[index]) if index < len(names) else column for index, column in enumerate(relation.columns)
    )
    return Relation(relation.collection, columns)


def _recursive(cte: exp.Expr, scope: ScopeBuilder[Any], names: Names) -> Relation:
    """Return the limit of a recursive query, in a loop: of the sum of the base and one step."""
    body, name = cte.this, cte.alias
    only(body, "this", "expression", "distinct", "with_")
    names = _with(body, scope, names)
    distinct = bool(body.args.get("distinct"))
    check_step(body.expression, name, distinct)
    base = _renamed(translate(body.this, scope, names), cte)
    columns = tuple(attrs.evolve(column, nullable=True) for column in base.columns)
    with scope.iterative("recursive") as loop:
        variable: Variable[Any, Any] = Variable(loop)
        step = translate(body.expression, loop, {**names, name: Relation(variable.collection, columns)})
        rows = entered(base.collection, loop).concat(as_kinds(step, columns, body.expression, exact=True))
        rows = rows.distinct() if distinct else rows.consolidate()
        return Relation(variable.set(rows).leave(), columns)


# -- set operations and limits -------------------------------------------------------------------------------------


def _set_operation(node: exp.Expr, scope: ScopeBuilder[Any], names: Names, domain: Relation | None) -> Relation:
    left, right = (translate(side, scope, names, domain) for side in (node.this, node.expression))
    width = _width(domain)
    if node.args.get("by_name"):
        left, right = _by_name(left, right, width, node), _by_name(right, left, width, node, first=False)
    columns = merged(left, right, node)
    one, other = as_kinds(left, columns, node), as_kinds(right, columns, node)
    relation = Relation(combined(node, one, other), columns)
    return _limited(node, relation, _output_places(columns, width), width)


def _by_name(relation: Relation, other: Relation, width: int, node: exp.Expr, first: bool = True) -> Relation:
    """Return a relation with the columns of both in the order of the first; what it does not have is null."""
    mine, others = relation.columns[width:], other.columns[width:]
    order = [*mine, *others] if first else [*others, *mine]
    for columns in (mine, others):
        if len({column.name for column in columns}) < len(columns):
            raise refusal(node, "BY NAME takes columns of different names")
    places = {column.name: width + index for index, column in enumerate(mine)}
    chosen = [places.get(name) for name in dict.fromkeys(column.name for column in order)]
    made = [
        relation.columns[places[name]] if name in places else Column(name, Kind.NULL)
        for name in dict.fromkeys(column.name for column in order)
    ]
    rows = relation.collection.map(lambda row: (*row[:width], *(None if place is None else row[place] for place in chosen)))
    return Relation(rows, (*relation.columns[:width], *made))


def _output_places(columns: Sequence[Column], first: int = 0) -> dict[exp.Expr, int]:
    return {output_column(place - first): place for place in range(first, len(columns))}


def _number(node: exp.Expr | None, name: str) -> int:
    if node is None:
        return 0
    value = bare(node.expression)
    if not isinstance(value, exp.Literal) or not str(value.this).isdigit():
        raise refusal(node, f"{name} takes a literal whole number")
    return int(str(value.this))


def _limited(node: exp.Expr, relation: Relation, places: Mapping[exp.Expr, int], first: int = 0) -> Relation:
    """Return the first rows in an order, for each value of the ``first`` columns; an order alone changes nothing."""
    order, limit, offset = node.args.get("order"), node.args.get("limit"), node.args.get("offset")
    orders = [] if order is None else order.expressions
    width = len(relation.columns)
    if limit is None and offset is None:
        if orders:
            sort_key(orders, NameScope(relation.columns, places), width)  # for what it refuses
        return relation
    if not orders and rows_at_most(_unlimited(node))[1] > 1 and (limit is None or _number(limit, "LIMIT")):
        raise refusal(limit or offset or node, "LIMIT and OFFSET need ORDER BY: which rows come first is unspecified")
    key = sort_key(orders, NameScope(relation.columns, places), width)
    skipped = _number(offset, "OFFSET")
    rows = relation.collection

    def group(row: Row) -> Row:
        return row[:first]

    if limit is not None:
        k = _number(limit, "LIMIT")
        chosen = first_rows(rows, group, key, skipped + k) if skipped + k else rows.filter(_nothing)
    else:
        chosen = rows
    if skipped:
        chosen = chosen.minus(first_rows(rows, group, key, skipped))
    return relation.with_collection(chosen)


def _unlimited(node: exp.Expr) -> exp.Expr:
    copy = node.copy()
    for name in ("limit", "offset"):
        copy.set(name, None)
    return copy


def _nothing(row: Row) -> bool:
    return False


# -- SELECT --------------------------------------------------------------------------------------------------------

_JOINS: Final = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@attrs.frozen
class _Select:
    """The translation of one ``SELECT``: in ``scope``, of the tables ``names``, for each row of ``domain``."""

    scope: ScopeBuilder[Any]
    names: Names
    domain: Relation | None = None

    @property
    def outer(self) -> list[exp.Expr]:
        """The columns of the domain, which come first in each row of the result."""
        return [] if self.domain is None else hidden(len(self.domain.columns))

    def translate(self, node: exp.Expr) -> Relation:
        relation = self.source(node, list(conjuncts(node.args.get("where"))))
        outputs = list(node.expressions)
        orders = [] if node.args.get("order") is None else [ordered.this for ordered in node.args["order"].expressions]
        having = list(conjuncts(node.args.get("having")))
        qualify = list(conjuncts(node.args.get("qualify")))
        group = node.args.get("group")
        aggregates = aggregates_in([*outputs, *having, *qualify, *orders])
        for aggregate in aggregates:
            if self.domain is not None and columns_in(aggregate) and columns_in(aggregate) <= self.domain.tables:
                raise refusal(aggregate, "an aggregate of columns from outside belongs to the query around this one")
        if group is not None or aggregates or having:
            sets = [()] if group is None else key_sets(group, outputs)
            relation = self.with_subqueries(relation, [*(key for keys in sets for key in keys), *aggregates])
            relation = grouped_by_sets(relation, self.domain, sets, aggregates)
            relation = self.filtered(relation, having)
        windows = windows_in([*outputs, *qualify, *orders])
        if windows:
            relation = self.with_subqueries(relation, windows)
            relation = with_windows(relation, self.outer, windows, node.args.get("windows") or [], qualify)
        relation = self.filtered(relation, qualify)
        return self.projected(node, relation, outputs)

    def projected(self, node: exp.Expr, relation: Relation, outputs: Sequence[exp.Expr]) -> Relation:
        """Return the selected columns: distinct, ordered and limited."""
        values = [output.this if isinstance(output, exp.Alias) else output for output in outputs]
        orders = [] if node.args.get("order") is None else [ordered.this for ordered in node.args["order"].expressions]
        relation = unnested(self.with_subqueries(relation, [*values, *orders]), unnests_in(values))
        first = len(self.outer)
        scalars = [compile_scalar(value, relation.scope) for value in (*self.outer, *values)]
        names = [*(f"{HIDDEN}{index}" for index in range(first)), *(output.alias_or_name for output in outputs)]
        columns = [Column(name, scalar.kind, scalar.nullable) for name, scalar in zip(names, scalars)]
        places = _output_places(columns, first)
        for index, value in enumerate(values, first):
            places.setdefault(value, index)
        width = len(columns)
        distinct, order = node.args.get("distinct"), node.args.get("order")
        on: list[exp.Expr] = []
        if distinct is not None:
            on = [] if distinct.args.get("on") is None else list(distinct.args["on"].expressions)
        unselected: list[Scalar] = []
        more: list[exp.Expr] = []

        def place(part: exp.Expr, read: bool = True) -> None:
            """Give an expression that is not selected a column, which is dropped afterwards; only check it if it is not read."""
            if part not in places and not isinstance(part, exp.Literal):
                scalar = compile_scalar(part, relation.scope)
                if read:
                    more.append(part)
                    places[part] = width + len(unselected)
                    unselected.append(scalar)

        limited = node.args.get("limit") is not None or node.args.get("offset") is not None
        for part in on:
            if isinstance(part, exp.Literal):
                raise refusal(part, "DISTINCT ON takes names, not values")
            place(part)
        for ordered in [] if order is None else order.expressions:
            place(ordered.this, bool(on or (limited and distinct is None)))
        functions = [scalar.function for scalar in (*scalars, *unselected)]
        rows = projected(relation.collection, functions, [*self.outer, *values, *more], relation.scope)
        if distinct is not None and not on:
            rows = rows.distinct()
        if not limited and not on:  # an order alone changes nothing
            return Relation(rows, tuple(columns))
        extra = [Column(f"order{index}", scalar.kind, scalar.nullable) for index, scalar in enumerate(unselected)]
        result = Relation(rows, (*columns, *extra))
        if on:
            orders = [] if order is None else order.expressions
            if not orders:
                raise refusal(distinct or node, "DISTINCT ON needs ORDER BY: which row of a group it takes is unspecified")
            group = [*range(first), *(places[part] for part in on)]
            key = sort_key(orders, NameScope(result.columns, places), len(result.columns))
            rows = first_rows(rows, lambda row: tuple(row[index] for index in group), key, 1)
            result = result.with_collection(rows)
        if limited:
            result = _limited(node, result, places, first)
        rows = pruned(result.collection, range(width)) if unselected else result.collection
        return Relation(rows, tuple(columns))

    # -- FROM and WHERE --------------------------------------------------------------------------------------------

    def source(self, node: exp.Expr, conditions: list[exp.Expr]) -> Relation:
        """Return the rows of FROM and its joins for which the conditions of WHERE are true."""
        clause = node.args.get("from_")
        joins = list(node.args.get("joins") or [])
        left = list(conditions)
        sides = {str(other.args.get("side") or "").upper() for other in joins}
        early = not sides & {"RIGHT", "FULL"}  # those bring rows that conditions must see after the join

        def ready(relation: Relation) -> list[exp.Expr]:
            chosen = [
                condition
                for condition in left
                if early and not has_query(condition) and columns_in(condition) and columns_in(condition) <= relation.tables
            ]
            left[:] = [condition for condition in left if condition not in chosen]
            return chosen

        relation: Relation | None = None
        domain = self.domain
        if domain is not None and (clause is None or self.reads_domain([clause, *joins], domain)):
            if not early:
                raise refusal(node, "a correlated FROM with a RIGHT or FULL JOIN is not supported")
            relation, domain = domain, None
        if clause is None:
            relation = relation or Relation(constant(self.scope, [()]), ())
        else:
            if relation is None:
                joins, left = by_equalities(clause.this, joins, left)
                relation = self.item(clause.this)
            else:
                joins = [exp.Join(this=clause.this), *joins]
        relation = self.filtered(relation, ready(relation))
        for other in joins:
            relation = self.joined(relation, other, ready)
        if domain is not None:
            early = True
            equal = ready(beside(domain, relation, relation.collection))
            relation = join(domain, relation, equal, "inner")
        return self.filtered(relation, left)

    def reads_domain(self, nodes: Sequence[exp.Expr], domain: Relation) -> bool:
        """Return whether FROM reads columns from outside, so that it is different for each row of the domain."""
        return any(columns_in(node) & domain.tables for node in nodes)

    def joined(self, relation: Relation, node: exp.Expr, ready: Callable[[Relation], list[exp.Expr]]) -> Relation:
        """Return one more join."""
        side, kind = str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()
        method = str(node.args.get("method") or "").upper()
        how = _JOINS.get(side)
        if kind in ("SEMI", "ANTI") and not side:
            how = kind.lower()
        elif kind not in ("", "INNER", "OUTER", "CROSS"):
            how = None
        if how is None or method not in ("", "ASOF") or (method == "ASOF" and how not in ("inner", "left")):
            raise refusal(node, f"{method} {side} {kind} JOIN is not supported".replace("  ", " ").strip())
        unnest = unnest_of(node.this)
        if unnest is not None:
            conditions = [condition for condition in conjuncts(node.args.get("on")) if not _always(condition)]
            if conditions and how == "left":
                raise refusal(node, "a LEFT JOIN of UNNEST is ON TRUE")
            return self.filtered(joined_elements(relation, unnest, how, node), conditions)
        other, conditions = self.lateral(relation, node.this, how)
        if other.tables & relation.tables:
            raise refusal(node, "two tables of one name: give one an alias")
        conditions += conjuncts(node.args.get("on"))
        for condition in conditions:
            if has_query(condition):
                raise refusal(condition, "a subquery in ON is not supported: put it into WHERE")
        conditions = [condition for condition in conditions if not _always(condition)]
        if method == "ASOF":
            return asof_join(relation, other, conditions, node, optional=how == "left")
        if how == "inner":
            other = self.filtered(other, ready(other))
            conditions += ready(beside(relation, other, relation.collection))
        elif how != "full":  # what is asked of one side alone decides which of its rows match
            tables = relation.tables if how == "right" else other.tables
            alone = [condition for condition in conditions if columns_in(condition) and columns_in(condition) <= tables]
            conditions = [condition for condition in conditions if condition not in alone]
            if how == "right":
                relation = self.filtered(relation, alone)
            else:
                other = self.filtered(other, alone)
        return join(relation, other, conditions, how)

    def lateral(self, relation: Relation, node: exp.Expr, how: str) -> tuple[Relation, list[exp.Expr]]:
        """Return an item of a join, which may read columns of the rows before it, and what matches its rows with those."""
        query = node
        if isinstance(node, exp.Lateral):
            query = node.this
        if not isinstance(query, exp.Subquery) or query.args.get("joins"):
            return self.item(node), []
        if not outer_columns(query.this, relation):
            return self.subquery(query, node), []
        if how not in ("inner", "left"):
            raise refusal(node, "a LATERAL subquery stands in an inner or left join")
        return self.dependent(relation, query, node.alias, node)

    def subquery(self, query: exp.Expr, node: exp.Expr) -> Relation:
        """Return a subquery of FROM that reads nothing from outside."""
        only(query, "this", "alias")
        return translate(query.this, self.scope, self.names).named(node.alias, _alias_columns(node))

    def item(self, node: exp.Expr) -> Relation:
        """Return a table, a subquery, a list of rows or a join in parentheses of FROM."""
        joins = node.args.get("joins") or []
        if joins:
            first = node.copy()
            first.set("joins", None)
            relation = self.item(first)
            for other in joins:
                relation = self.joined(relation, other, lambda relation: [])
            return relation
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            relation = self.names[node.name]
            relation = relation.with_collection(entered(relation.collection, self.scope))
            return relation.named(node.alias_or_name, _alias_columns(node))
        if isinstance(node, exp.Subquery):
            return self.subquery(node, node)
        if isinstance(node, exp.Values):
            return self.rows(node).named(node.alias, _alias_columns(node))
        unnest = unnest_of(node)
        if unnest is not None:
            return joined_elements(Relation(constant(self.scope, [()]), ()), unnest, "inner", node)
        raise refusal(node, "this in FROM is not supported here")

    def rows(self, node: exp.Expr) -> Relation:
        """Return the rows of VALUES."""
        kinds: list[Column] = []
        parts: list[Relation] = []
        for values in node.expressions:
            scalars = [compile_scalar(value, NameScope((), {})) for value in (values.expressions or [values])]
            columns = tuple(Column(f"col{index}", scalar.kind, scalar.nullable) for index, scalar in enumerate(scalars))
            part = Relation(constant(self.scope, [tuple(scalar.function(()) for scalar in scalars)]), columns)
            kinds = list(columns) if not parts else list(merged(Relation(part.collection, tuple(kinds)), part, node))
            parts.append(part)
        rows = [as_kinds(part, kinds, node) for part in parts]
        return Relation(rows[0].concat(*rows[1:]), tuple(kinds))

    def filtered(self, relation: Relation, conditions: Sequence[exp.Expr]) -> Relation:
        """Return the rows for which all conditions are true."""
        plain = [condition for condition in conditions if not has_query(condition)]
        rows = filtered(relation.collection, [condition_of(condition, relation.scope) for condition in plain])
        relation = relation.with_collection(rows)
        for condition in conditions:
            if has_query(condition):
                chosen = self.subquery_condition(relation, condition)
                if chosen is not None:
                    relation = relation.with_collection(chosen)
                    continue
                width = len(relation.columns)
                wider = self.with_subqueries(relation, [condition])
                rows = filtered(wider.collection, [condition_of(condition, wider.scope)])
                relation = relation.with_collection(pruned(rows, range(width)))
                continue
            relation = _known(relation, condition)
        return relation

    # -- subqueries ------------------------------------------------------------------------------------------------

    def dependent(
        self, relation: Relation, query: exp.Expr, alias: str, item: exp.Expr | None = None
    ) -> tuple[Relation, list[exp.Expr]]:
        """Return a subquery's rows for all values of the columns of ``relation`` that it reads, and what matches those."""
        outer = outer_columns(query, relation)
        if not outer:
            rows = translate(query, self.scope, self.names)
            return rows.named(alias, [f"c{index}" for index in range(len(rows.columns))]), []
        scalars = [compile_scalar(node, relation.scope) for node in outer]
        columns = tuple(Column(node.name, scalar.kind, scalar.nullable) for node, scalar in zip(outer, scalars))
        tables = frozenset().union(*(columns_in(node) for node in outer))
        places = {node: index for nodes in (outer, hidden(len(outer))) for index, node in enumerate(nodes)}
        values = projected(relation.collection, [scalar.function for scalar in scalars], outer, relation.scope)
        domain = Relation(values.distinct(), columns, places, tables)
        inner = translate(query, self.scope, self.names, domain)
        width = len(outer)
        own = [f"c{index}" for index in range(len(inner.columns) - width)]
        if item is not None:
            own = _alias_columns(item)
        inner = inner.named(alias, [*(f"{HIDDEN}{index}" for index in range(width)), *own])
        same: list[exp.Expr] = [
            exp.NullSafeEQ(this=node.copy(), expression=exp.column(f"{HIDDEN}{index}", alias)) for index, node in enumerate(outer)
        ]
        return inner, same

    def subquery_condition(self, relation: Relation, condition: exp.Expr) -> Collection[Any, Row] | None:
        """Return the rows for which ``[NOT] EXISTS`` or ``[NOT] IN`` is true, or ``None`` for other conditions."""
        negated = False
        while isinstance(condition, exp.Not | exp.Paren):
            negated = negated is not isinstance(condition, exp.Not)
            condition = condition.this
        asked = _membership(condition)
        if asked is None:
            return None
        answer = self.membership(relation, asked)
        negated = negated is not asked.negated
        return answer.false(relation) if negated else answer.true

    def membership(self, relation: Relation, node: _Membership) -> _Answer:
        """Return for which rows ``EXISTS`` or ``IN`` is true, for which it is unknown, and for which it is false."""
        query = node.query
        outer = outer_conditions(query, relation)
        if outer and is_plain(query, relation):
            rest = [part for part in conjuncts(query.args.get("where")) if part not in outer]
            other = _Select(self.scope, _with(query, self.scope, self.names)).source(query, rest)
            return self.answer(relation, node, other, outer, [part.unalias() for part in query.selects])
        alias = _fresh(relation)
        other, same = self.dependent(relation, query, alias)
        return self.answer(relation, node, other, same, [exp.column(f"c{index}", alias) for index in range(len(query.selects))])

    def answer(
        self,
        relation: Relation,
        node: _Membership,
        other: Relation,
        conditions: list[exp.Expr],
        offered: Sequence[exp.Expr],
    ) -> _Answer:
        """Return the answer from the rows of a subquery and what matches them, of which ``IN`` compares those ``offered``."""
        if not node.asked:
            return _Answer(matched(relation, other, match_of(relation, other, conditions)), [])
        if len(offered) != len(node.asked):
            raise refusal(node.node, f"it compares {len(node.asked)} expressions with a query of {len(offered)} columns")
        equal = [exp.EQ(this=one, expression=part) for one, part in zip(node.asked, offered)]
        true = matched(relation, other, match_of(relation, other, [*conditions, *equal]))
        nullable = [
            compile_scalar(asked, relation.scope).nullable or compile_scalar(part, other.scope).nullable
            for asked, part in zip(node.asked, offered)
        ]
        if not any(nullable):
            return _Answer(true, [])
        # unknown: no row is equal, and one would be but for nulls
        rest = relation.with_collection(relation.collection.minus(true))
        if len(nullable) > 1:
            perhaps = [
                exp.or_(pair, exp.Is(this=pair.this, expression=exp.Null()), exp.Is(this=pair.expression, expression=exp.Null()))
                if absent
                else pair
                for pair, absent in zip(equal, nullable)
            ]
            return _Answer(true, [matched(rest, other, match_of(relation, other, [*conditions, *perhaps]))])
        match = match_of(relation, other, conditions)
        asked_null, offered_null = (exp.Is(this=part, expression=exp.Null()) for part in (node.asked[0], offered[0]))
        to_null = matched(rest, self.filtered(other, [offered_null]), match)
        left = rest.with_collection(rest.collection.minus(to_null))
        return _Answer(true, [to_null, matched(self.filtered(left, [asked_null]), other, match)])

    def with_subqueries(self, relation: Relation, nodes: Sequence[exp.Expr]) -> Relation:
        """Return the relation with a column more for each subquery in expressions."""
        for node in nodes:
            places = relation.places
            for part in list(node.walk(prune=lambda inner, places=places: _stands_alone(inner, places))):  # type: ignore[misc]
                if part in relation.places:
                    continue
                if _membership(part) is not None:
                    relation = self.marked(relation, part)
                elif isinstance(part, exp.Subquery):
                    relation = self.scalar(relation, part)
        return relation

    def marked(self, relation: Relation, node: exp.Expr) -> Relation:
        """Return the relation with a column that says whether ``EXISTS`` or ``IN`` is true, false or unknown."""
        asked = _membership(node)
        assert asked is not None
        answer = self.membership(relation, asked)
        yes = not asked.negated
        rows = answer.true.map(lambda row: (*row, yes)).concat(answer.false(relation).map(lambda row: (*row, not yes)))
        rows = rows.concat(*(part.map(lambda row: (*row, None)) for part in answer.unknown))
        return relation.extended(rows, [Column("mark", Kind.BOOLEAN, bool(answer.unknown))], [node])

    def scalar(self, relation: Relation, node: exp.Expr) -> Relation:
        """Return the relation with a column that is the value of a scalar subquery: null where it has no row."""
        query = query_in(node)
        if len(query.selects) != 1:
            raise refusal(node, "a scalar subquery has one column")
        equal = equal_to_outer(query, relation) if is_plain(query, relation, aggregates=True) else None
        if equal is not None:
            return self.scalar_of_groups(relation, node, query, equal)
        alias = _fresh(relation)
        other, same = self.dependent(relation, query, alias)
        least, most = rows_at_most(query)
        if most > 1:
            other = other.with_collection(_single(other.collection, len(same), node))
        joined = join(relation, other, same, "inner" if least == 1 else "left")
        width = len(relation.columns)
        rows = pruned(joined.collection, [*range(width), len(joined.columns) - 1])
        return relation.extended(rows, [joined.columns[-1]], [node])

    def scalar_of_groups(
        self, relation: Relation, node: exp.Expr, query: exp.Query, equal: Sequence[tuple[exp.Expr, exp.Expr]]
    ) -> Relation:
        """Return the same for an aggregate of the rows with values that are equal, without a domain: in half the time."""
        outer = outer_conditions(query, relation)
        rest = [part for part in conjuncts(query.args.get("where")) if part not in outer]
        source = _Select(self.scope, _with(query, self.scope, self.names)).source(query, rest)
        value = query.selects[0].unalias()
        aggregates = aggregates_in([value])
        source = self.with_subqueries(source, aggregates)
        groups = grouped(source, [inner for inner, _ in equal], aggregates)
        scope = NameScope(groups.columns, {part: groups.places[part] for part in aggregates})
        scalar = compile_scalar(value, scope)
        none = (None,) * len(equal) + empty_group(source, aggregates)
        empty = scalar.function(none)
        rows = groups.collection.map(lambda row: (*row[: len(equal)], scalar.function(row)))
        alias = _fresh(relation)
        column = Column("value", scalar.kind)
        names = [f"k{index}" for index in range(len(equal))]
        values = Relation(rows, (*groups.columns[: len(equal)], column)).named(alias, names)
        same = [exp.EQ(this=one, expression=exp.column(f"k{index}", alias)) for index, (_, one) in enumerate(equal)]
        width = len(relation.columns)
        joined = join(relation, values, same, "left").collection  # a key is never null where it matches
        rows = joined.map(lambda row: (*row[:width], empty if row[width] is None else row[-1]))
        return relation.extended(rows, [column], [node])


@attrs.frozen
class _Membership:
    """``EXISTS``, ``IN``, ``= ANY`` or ``<> ALL``: the query, and the expressions that are compared with its columns."""

    node: exp.Expr
    query: exp.Query
    asked: tuple[exp.Expr, ...]
    negated: bool = False


@attrs.frozen
class _Answer:
    """The rows for which a condition is true, and those for which it is unknown."""

    true: Collection[Any, Row]
    unknown: list[Collection[Any, Row]]

    def false(self, relation: Relation) -> Collection[Any, Row]:
        """Return the other rows."""
        rows = minus(relation.collection, self.true)
        for part in self.unknown:
            rows = minus(rows, part)
        return rows


def _membership(node: exp.Expr) -> _Membership | None:
    if isinstance(node, exp.Exists):
        return _Membership(node, query_in(node.this), ())
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        only(node, "this", "query")
        asked, query, negated = node.this, node.args["query"], False
    elif isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any) and has_query(node.expression):
        asked, query, negated = node.this, node.expression.this, False
    elif isinstance(node, exp.NEQ) and isinstance(node.expression, exp.All) and has_query(node.expression):
        asked, query, negated = node.this, node.expression.this, True
    else:
        return None
    if has_query(asked):
        raise refusal(node, "a subquery on the left of IN is not supported")
    values = tuple(asked.expressions) if isinstance(asked, exp.Tuple) else (asked,)
    return _Membership(node, query_in(query), values, negated)


def _single(rows: Collection[Any, Row], width: int, node: exp.Expr) -> Collection[Any, Row]:
    """Return the rows, of which those with the same first columns must be one: else ``SqlError``."""
    error = refusal(node, "this subquery has more than one row where it stands for a value")

    def check(key: Any, counted: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
        if sum(count for _, count in counted) > 1:
            raise SqlError(str(error))
        return counted

    return rows.map(lambda row: (row[:width], row)).reduce(check, name="one row").map(lambda pair: pair[1])


def _stands_alone(node: exp.Expr, places: Mapping[exp.Expr, int]) -> bool:
    return node in places or isinstance(node, exp.Query) or _membership(node) is not None


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
