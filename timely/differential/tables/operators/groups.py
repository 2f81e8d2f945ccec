"""``GROUP BY``: each group's aggregates, kept up to date by what changes in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from timely.differential.collections import Collection
from timely.differential.operators.aggregates import Top
from timely.differential.operators.reductions import Function as Reduction
from timely.differential.tables.expressions.column_stages import ByColumns, staged
from timely.differential.tables.expressions.relation import Relation, constant
from timely.differential.tables.expressions.scalar_compiler import Function, Row, compile_scalar
from timely.differential.tables.operators.aggregations import WRAPPERS, Aggregation, First, Sums, Whole, aggregation
from timely.differential.tables.operators.column_groups import measures_of
from timely.differential.tables.values.kinds import Column
from timely.differential.tables.values.refusals import refusal
from timely.differential.updates.linear import linear
from timely.differential.updates.rings import VECTORS, Vector

Key = Callable[[Any], Any]


def aggregates_in(nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the aggregates of groups in expressions, each once; those of subqueries and of windows are not among them."""
    aggregates: dict[exp.Expr, None] = {}
    for node in nodes:
        _collect(node, aggregates)
    return list(aggregates)


def _collect(node: exp.Expr, aggregates: dict[exp.Expr, None]) -> None:
    if isinstance(node, exp.Query):
        return
    if isinstance(node, exp.Window):
        inner: Any = node.this
        while isinstance(inner, WRAPPERS):
            if isinstance(inner, exp.Filter):
                _collect(inner.expression, aggregates)
            inner = inner.this
        for part in (*inner.iter_expressions(), *(child for child in node.iter_expressions() if child is not node.this)):
            _collect(part, aggregates)
    elif isinstance(node, (exp.AggFunc, *WRAPPERS)):
        aggregates[node] = None
    else:
        for part in node.iter_expressions():
            _collect(part, aggregates)


# -- sums ----------------------------------------------------------------------------------------------------------


def summands(aggregate: Aggregation, entry: Function) -> Callable[[Any], tuple[Any, ...]]:
    """Return what a row adds to the sums of an aggregate."""
    assert isinstance(aggregate.form, Sums)
    zeros, of = (0,) * aggregate.form.size, aggregate.form.summands

    def added(row: Any) -> tuple[Any, ...]:
        value = entry(row)
        return zeros if value is None else of(value)

    return added


def _sums(
    rows: Collection[Any, Any],
    key: Key,
    aggregations: Sequence[Aggregation],
    entries: Sequence[Function],
    group_all: bool,
    by_columns: ByColumns | None = None,
) -> Collection[Any, Any]:
    """Return ``(key, values)`` for aggregates that are sums; with ``group_all`` also where there are no rows."""
    parts = [summands(aggregate, entry) for aggregate, entry in zip(aggregations, entries)]
    forms = [aggregate.form for aggregate in aggregations if isinstance(aggregate.form, Sums)]
    width = 1 + sum(form.size for form in forms)
    present = 0 if group_all else 1

    def measured(updates: Any) -> list[Any]:
        by_group: dict[Any, list[Any]] = {}
        for row, diff in updates:
            group = key(row)
            sums = by_group.get(group)
            if sums is None:
                sums = by_group[group] = [0] * width
            sums[0] += present * diff
            place = 1
            for part in parts:
                for number in part(row):
                    if number:
                        sums[place] += number * diff
                    place += 1
        return [(group, Vector(sums)) for group, sums in by_group.items()]

    measures = staged(rows, "measures", measured, by_columns, VECTORS)
    if group_all:
        one = constant(rows.scope, [()])
        measures = measures.concat(
            Collection(
                linear(one.stream, "one group", lambda updates: [(key, Vector((diff,))) for key, diff in updates]), VECTORS
            )
        )

    def finished(group: Any, counts: dict[Any, Any]) -> list[tuple[Any, int]]:
        vector = counts[None]
        sums = (*vector, *(0,) * (width - len(vector)))
        results, start = [], 1
        for form in forms:
            results.append(form.result(sums[start : start + form.size]))
            start += form.size
        return [(tuple(results), 1)]

    return measures._reduced(Reduction(finished), "aggregate", None, pairs=False)


# -- other aggregates ----------------------------------------------------------------------------------------------


def _entries(rows: Collection[Any, Any], key: Key, aggregate: Aggregation, group_all: bool) -> Collection[Any, Any]:
    """Return ``(key, entry)``; ``None`` is an entry too, so that each group has one."""
    entry = aggregate.entry
    pairs = rows.map(lambda row: (key(row), entry(row)))
    if group_all:
        pairs = pairs.concat(constant(rows.scope, [((), None)]))
    return pairs.distinct() if aggregate.distinct else pairs


def _first(rows: Collection[Any, Any], key: Key, aggregate: Aggregation, group_all: bool) -> Collection[Any, Any]:
    form = aggregate.form
    assert isinstance(form, First)

    def order(entry: Any) -> Any:
        return (True,) if entry is None else (False, form.order(entry))

    chosen = _entries(rows, key, aggregate, group_all)._reduced(Top(1, order), aggregate.column.name, None)
    return chosen.map(lambda pair: (pair[0], (None if pair[1] is None else form.result(pair[1]),)))


def _whole(rows: Collection[Any, Any], key: Key, aggregate: Aggregation, group_all: bool) -> Collection[Any, Any]:
    form = aggregate.form
    assert isinstance(form, Whole)
    order, empty = form.order, aggregate.empty
    if order is None:
        raise refusal(aggregate.node, f"{aggregate.column.name} needs ORDER BY inside: the order of its values is unspecified")

    def computed(group: Any, counted: list[Any]) -> list[Any]:
        entries = sorted((pair for pair in counted if pair[0] is not None and pair[1] > 0), key=lambda pair: order(pair[0]))
        values = [entry for entry, count in entries for _ in range(count)]
        return [((form.result(values) if values else empty,), 1)]

    return _entries(rows, key, aggregate, group_all).reduce(computed, name=aggregate.column.name)


def _distinct_sums(rows: Collection[Any, Any], key: Key, aggregate: Aggregation, group_all: bool) -> Collection[Any, Any]:
    pairs = _entries(rows, key, aggregate, False)
    return _sums(pairs, lambda pair: pair[0], [aggregate], [lambda pair: pair[1]], group_all)


# -- groups --------------------------------------------------------------------------------------------------------


def grouped(relation: Relation, keys: Sequence[exp.Expr], nodes: Sequence[exp.Expr]) -> Relation:
    """Return one row for each group: the keys, then the aggregates ``nodes``. Without keys there is always one group."""
    scope = relation.scope
    scalars = [compile_scalar(node, scope) for node in keys]
    aggregations = [aggregation(node, scope) for node in nodes]
    functions = [scalar.function for scalar in scalars]

    def key(row: Row) -> Row:
        return tuple(function(row) for function in functions)

    rows, group_all = relation.collection, not keys
    ordered, others = _split(aggregations)
    by_columns = measures_of(keys, [part.node for part in ordered], scope)
    result = _sums(rows, key, ordered, [part.entry for part in ordered], group_all, by_columns)
    for part in others:
        build = _distinct_sums if isinstance(part.form, Sums) else _first if isinstance(part.form, First) else _whole
        result = result.join_map(build(rows, key, part, group_all), lambda group, one, other: (group, one + other))
    columns = [Column(f"key{index}", scalar.kind, scalar.nullable) for index, scalar in enumerate(scalars)]
    columns += [part.column for part in (*ordered, *others)]
    places = {node: index for index, node in enumerate([*keys, *(part.node for part in (*ordered, *others))])}
    return Relation(result.map(lambda pair: pair[0] + pair[1]), tuple(columns), places, relation.tables)


def _split(aggregations: Sequence[Aggregation]) -> tuple[list[Aggregation], list[Aggregation]]:
    """Return the aggregates that are sums of one pass over the rows, and the others."""
    adding = [part for part in aggregations if isinstance(part.form, Sums) and not part.distinct]
    return adding, [part for part in aggregations if part not in adding]


def empty_group(relation: Relation, nodes: Sequence[exp.Expr]) -> tuple[Any, ...]:
    """Return the row of ``grouped`` for a group without rows and without keys."""
    adding, others = _split([aggregation(node, relation.scope) for node in nodes])
    return tuple(part.empty for part in (*adding, *others))
