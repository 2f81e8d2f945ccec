"""``GROUP BY``: each group's aggregates, kept up to date by what changes in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from timely.differential.collections import Collection
from timely.differential.operators.aggregates import Top
from timely.differential.operators.reductions import Function as Reduction
from timely.differential.tables.expressions.bound import Literal, NamedExpr
from timely.differential.tables.expressions.calls import call as called
from timely.differential.tables.expressions.column_stages import ByColumns, staged
from timely.differential.tables.expressions.relation import Relation, constant
from timely.differential.tables.expressions.scalar_compiler import Function, Row, compile_scalar
from timely.differential.tables.operators.added_rows import first_of_groups
from timely.differential.tables.operators.aggregations import AggregateCall, First, Sums, Whole
from timely.differential.tables.operators.column_groups import measures_of
from timely.differential.tables.operators.group_arrays import group_results
from timely.differential.tables.operators.group_extremes import extremes
from timely.differential.tables.values.kinds import Column, Kind
from timely.differential.updates.linear import linear
from timely.differential.updates.rings import VECTORS, Vector
from timely.differential.updates.row_columns import RowColumns
from timely.memory import MemoryBudget

Key = Callable[[Any], Any]


# -- sums ----------------------------------------------------------------------------------------------------------


def summands(aggregate: AggregateCall, entry: Function) -> Callable[[Any], tuple[Any, ...]]:
    """Return what a row adds to the sums of an aggregate."""
    zeros, of = (0,) * aggregate.sums.size, aggregate.sums.summands

    def added(row: Any) -> tuple[Any, ...]:
        value = entry(row)
        return zeros if value is None else of(value)

    return added


def _sums(
    rows: Collection[Any, Any],
    key: Key,
    aggregations: Sequence[AggregateCall],
    entries: Sequence[Function],
    group_all: bool,
    by_columns: ByColumns | None = None,
    *,
    arrays: bool = False,
    single: bool = False,
) -> Collection[Any, Any]:
    """Return ``(key, values)`` for aggregates that are sums; with ``group_all`` also where there are no rows.

    With ``arrays`` containers of columns may have rows of key and values instead; ``single`` says that keys have one value.
    """
    parts = [summands(aggregate, entry) for aggregate, entry in zip(aggregations, entries)]
    forms = [aggregate.sums for aggregate in aggregations]
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

    if arrays and rows.scope.subgraph.domain.total and MemoryBudget.current().limit is None:
        return Collection(group_results(measures.stream, aggregations, "aggregate", single=single))
    return measures._reduced(Reduction(finished), "aggregate", None, pairs=False)


# -- other aggregates ----------------------------------------------------------------------------------------------


def _entries(
    rows: Collection[Any, Any], key: Key, aggregate: AggregateCall, entry: Function, group_all: bool
) -> Collection[Any, Any]:
    """Return ``(key, entry)``; ``None`` is an entry too, so that each group has one."""
    pairs = rows.map(lambda row: (key(row), entry(row)))
    if group_all:
        pairs = pairs.concat(constant(rows.scope, [((), None)]))
    return pairs.distinct() if aggregate.distinct else pairs


def _first(pairs: Collection[Any, Any], aggregate: AggregateCall, *, grows: bool) -> Collection[Any, Any]:
    form = aggregate.form
    assert isinstance(form, First)

    def order(entry: Any) -> Any:
        return (True,) if entry is None else (False, form.order(entry))

    chosen = first_of_groups(pairs, Top(1, order), aggregate.name, grows=grows)
    return chosen.map(lambda pair: (pair[0], (None if pair[1] is None else form.result(pair[1]),)))


def _whole(pairs: Collection[Any, Any], aggregate: AggregateCall) -> Collection[Any, Any]:
    form = aggregate.form
    assert isinstance(form, Whole)
    order, empty = form.order, aggregate.empty
    assert order is not None

    def computed(group: Any, counted: list[Any]) -> list[Any]:
        entries = sorted((pair for pair in counted if pair[0] is not None and pair[1] > 0), key=lambda pair: order(pair[0]))
        values = [entry for entry, count in entries for _ in range(count)]
        return [((form.result(values) if values else empty,), 1)]

    return pairs.reduce(computed, name=aggregate.name)


# -- groups --------------------------------------------------------------------------------------------------------


def grouped(relation: Relation, keys: Sequence[NamedExpr], aggregates: Sequence[NamedExpr]) -> Relation:
    """Return one row for each group: the keys, then the aggregates. Without keys there is always one group."""
    scope = relation.scope
    scalars = [compile_scalar(part.value, scope) for part in keys]
    functions = [scalar.function for scalar in scalars]

    def key(row: Row) -> Row:
        return tuple(function(row) for function in functions)

    rows, group_all = relation.collection, not keys
    adding, others = _split(aggregates)
    result = None
    if not adding and len(others) == 1:
        ((part, call),) = others
        if isinstance(call.form, Sums):
            return _of_different(relation, keys, part.id, call)
        result = extremes(relation, keys, call, alone=True)
    if result is None:
        calls = [call for _, call in adding]
        entries, by_columns = [call.of_rows(scope) for call in calls], measures_of(keys, calls, scope)
        result = _sums(rows, key, calls, entries, group_all, by_columns, arrays=not others, single=len(keys) == 1)
        for part, call in others:
            result = result.join_map(_other(relation, keys, key, part.id, call), lambda group, one, other: (group, one + other))
    columns = [Column(f"key{index}", scalar.kind, scalar.nullable) for index, scalar in enumerate(scalars)]
    columns += [Column(call.name, call.kind, call.empty is None) for _, call in (*adding, *others)]
    ids = (*(part.id for part in keys), *(part.id for part, _ in (*adding, *others)))
    return Relation(Collection(linear(result.stream, "map", _joined)), tuple(columns), ids)


def _joined(updates: Any) -> Any:
    """Return pairs of a key and its values as rows."""
    return updates if isinstance(updates, RowColumns) else [(key + values, diff) for (key, values), diff in updates]


def _of_different(relation: Relation, keys: Sequence[NamedExpr], number: int, call: AggregateCall) -> Relation:
    """Return the groups with a sum of their different values: first the groups of these, then theirs."""
    values = call.inputs
    if call.condition is not None:
        values = tuple([called("case", [call.condition, value, Literal(Kind.NULL, None)]) for value in values])
    parts = [NamedExpr(-1 - place, value) for place, value in enumerate(values)]
    each = attrs.evolve(call, distinct=False, condition=None, inputs=tuple([part.ref for part in parts]))
    different = grouped(relation, [*keys, *parts], ())
    return grouped(different, [NamedExpr(key.id, key.ref) for key in keys], [NamedExpr(number, each)])


def _other(relation: Relation, keys: Sequence[NamedExpr], key: Key, number: int, call: AggregateCall) -> Collection[Any, Any]:
    """Return ``(key, (value,))`` of an aggregate that is no sum of one pass over the rows."""
    if isinstance(call.form, Sums):
        width = len(keys)
        return _of_different(relation, keys, number, call).collection.map(lambda row: (row[:width], row[width:]))
    by_numbers = extremes(relation, keys, call, alone=False)
    if by_numbers is not None:
        return by_numbers
    pairs = _entries(relation.collection, key, call, call.of_rows(relation.scope), not keys)
    if isinstance(call.form, First):
        return _first(pairs, call, grows=relation.grows)
    return _whole(pairs, call)


_Calls = list[tuple[NamedExpr, AggregateCall]]


def _split(aggregates: Sequence[NamedExpr]) -> tuple[_Calls, _Calls]:
    """Return the aggregates that are sums of one pass over the rows, and the others."""
    adding: _Calls = []
    others: _Calls = []
    for part in aggregates:
        call = part.value
        assert isinstance(call, AggregateCall)
        (adding if isinstance(call.form, Sums) and not call.distinct else others).append((part, call))
    return adding, others


def empty_group(aggregates: Sequence[NamedExpr]) -> tuple[Any, ...]:
    """Return the aggregates of ``grouped`` for a group without rows."""
    adding, others = _split(aggregates)
    return tuple(call.empty for _, call in (*adding, *others))
