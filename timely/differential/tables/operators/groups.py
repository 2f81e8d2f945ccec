"""``GROUP BY``: each group's aggregates, kept up to date by what changes in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import attrs

from timely.differential.collections import Collection
from timely.differential.operators.aggregates import Top
from timely.differential.operators.reductions import Function as Reduction
from timely.differential.tables.expressions.bound import Literal, NamedExpr, SortKey
from timely.differential.tables.expressions.calls import call as called
from timely.differential.tables.expressions.column_stages import projected, pruned, staged
from timely.differential.tables.expressions.relation import Relation, constant
from timely.differential.tables.expressions.scalar_compiler import Row, RowScope, compile_scalar
from timely.differential.tables.operators.added_rows import first_of_groups
from timely.differential.tables.operators.aggregations import AggregateCall, First, Sums, Whole
from timely.differential.tables.operators.column_groups import SumPlaces, measures_of
from timely.differential.tables.operators.group_arrays import group_results
from timely.differential.tables.operators.group_extremes import carried, extremes
from timely.differential.tables.operators.partitions import held_together
from timely.differential.tables.operators.window_functions import row_number
from timely.differential.tables.operators.window_partitions import with_windows
from timely.differential.tables.values.kinds import Column, Kind
from timely.differential.updates.linear import linear
from timely.differential.updates.rings import VECTORS, Vector
from timely.differential.updates.row_columns import RowColumns
from timely.differential.updates.updates import Update

# -- sums ----------------------------------------------------------------------------------------------------------


def _measures(
    relation: Relation, keys: Sequence[NamedExpr], calls: Sequence[AggregateCall], place: SumPlaces
) -> Collection[Any, Any]:
    """Return ``(key, Vector)`` for the groups of rows: what these add to sums, at their place among all sums of a group."""
    scope = relation.scope
    key, by_columns = _key_of(keys, scope), measures_of(keys, calls, scope, place)
    parts = [call.summands(call.of_rows(scope)) for call in calls]
    width, present, start = len(place.scales), int(place.counts_rows), place.start

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        by_group: dict[Any, list[Any]] = {}
        for row, diff in updates:
            group = key(row)
            sums = by_group.get(group)
            if sums is None:
                sums = by_group[group] = [0] * width
            sums[0] += present * diff
            at = start
            for part in parts:
                for number in part(row):
                    if number:
                        sums[at] += number * diff
                    at += 1
        return [(group, Vector(sums)) for group, sums in by_group.items()]

    return staged(relation.collection, "measures", by_rows, by_columns, VECTORS)


def _sums(
    measures: Collection[Any, Any], calls: Sequence[AggregateCall], group_all: bool, *, arrays: bool, single: bool
) -> Collection[Any, Any]:
    """Return ``(key, values)`` of sums; with ``group_all`` also where there are no rows.

    With ``arrays`` containers of columns may have rows of key and values instead; ``single`` says that keys have one value.
    """
    if group_all:
        one = constant(measures.scope, [()])
        measures = measures.concat(
            Collection(
                linear(one.stream, "one group", lambda updates: [(key, Vector((diff,))) for key, diff in updates]), VECTORS
            )
        )
    forms = [call.sums for call in calls]
    width = 1 + sum(form.size for form in forms)

    def finished(group: Any, counts: dict[Any, Any]) -> list[tuple[Any, int]]:
        vector = counts[None]
        sums = (*vector, *(0,) * (width - len(vector)))
        results, start = [], 1
        for form in forms:
            results.append(form.result(sums[start : start + form.size]))
            start += form.size
        return [(tuple(results), 1)]

    if arrays and held_together(measures):
        return Collection(group_results(measures.stream, calls, "aggregate", single=single))
    return measures._reduced(Reduction(finished), "aggregate", None, pairs=False)


# -- other aggregates ----------------------------------------------------------------------------------------------


def _key_of(keys: Sequence[NamedExpr], scope: RowScope) -> Callable[[Row], Row]:
    functions = [compile_scalar(part.value, scope).function for part in keys]
    return lambda row: tuple([function(row) for function in functions])


def _entries(relation: Relation, keys: Sequence[NamedExpr], call: AggregateCall) -> Collection[Any, Any]:
    """Return ``(key, entry)``; ``None`` is an entry too, so that each group has one."""
    scope = relation.scope
    key, entry = _key_of(keys, scope), call.of_rows(scope)
    pairs = relation.collection.map(lambda row: (key(row), entry(row)))
    if not keys:
        pairs = pairs.concat(constant(relation.collection.scope, [((), None)]))
    return pairs.distinct() if call.distinct else pairs


def _first(pairs: Collection[Any, Any], call: AggregateCall, *, grows: bool) -> Collection[Any, Any]:
    form = call.form
    assert isinstance(form, First)

    def order(entry: Any) -> Any:
        return (True,) if entry is None else (False, form.order(entry))

    chosen = first_of_groups(pairs, Top(1, order), call.name, grows=grows)
    return chosen.map(lambda pair: (pair[0], (None if pair[1] is None else form.result(pair[1]),)))


def _whole(pairs: Collection[Any, Any], call: AggregateCall) -> Collection[Any, Any]:
    form = call.form
    assert isinstance(form, Whole)
    order, empty = form.order, call.empty
    assert order is not None

    def computed(group: Any, counted: list[Any]) -> list[Any]:
        entries = sorted((pair for pair in counted if pair[0] is not None and pair[1] > 0), key=lambda pair: order(pair[0]))
        values = [entry for entry, count in entries for _ in range(count)]
        return [((form.result(values) if values else empty,), 1)]

    return pairs.reduce(computed, name=call.name)


# -- groups --------------------------------------------------------------------------------------------------------


def grouped(relation: Relation, keys: Sequence[NamedExpr], aggregates: Sequence[NamedExpr]) -> Relation:
    """Return one row for each group: the keys, then the aggregates. Without keys there is always one group."""
    scope, group_all = relation.scope, not keys
    adding, single, others = _split(aggregates)
    passes = [_rows_of(relation, keys, call) for _, call in single]
    if single and keys and len(aggregates) == 1 and isinstance(single[0][1].form, First):
        result = passes[0].relation.collection
    else:
        if adding or not passes:
            passes.insert(0, _Pass(relation, keys, [call for _, call in adding]))
        calls, start, measures = [call for each in passes for call in each.calls], 1, []
        scales = [0, *(scale for call in calls for scale in call.sums.scales)]
        for number, each in enumerate(passes):
            measures.append(_measures(*each, SumPlaces(start, scales, bool(keys) and not number)))
            start += sum(call.sums.size for call in each.calls)
        together = measures[0].concat(*measures[1:])
        result = _sums(together, calls, group_all, arrays=not others, single=len(keys) == 1)
        for _, call in others:
            result = result.join_map(_other(relation, keys, call), lambda group, one, other: (group, one + other))
        result = Collection(linear(result.stream, "map", _joined))
    scalars = [compile_scalar(part.value, scope) for part in keys]
    columns = [Column(f"key{index}", scalar.kind, scalar.nullable) for index, scalar in enumerate(scalars)]
    columns += [Column(call.name, call.kind, call.empty is None) for _, call in (*adding, *single, *others)]
    ids = (*(part.id for part in keys), *(part.id for part, _ in (*adding, *single, *others)))
    return Relation(result, tuple(columns), ids)


def _joined(updates: Any) -> Any:
    """Return pairs of a key and its values as rows."""
    return updates if isinstance(updates, RowColumns) else [(key + values, diff) for (key, values), diff in updates]


class _Pass(NamedTuple):
    """Rows whose groups by keys have these sums."""

    relation: Relation
    keys: Sequence[NamedExpr]
    calls: Sequence[AggregateCall]


def _rows_of(relation: Relation, keys: Sequence[NamedExpr], call: AggregateCall) -> _Pass:
    """Return rows whose sums are those of different values, or the first value of each group, which is the sum of its one row."""
    values = call.inputs
    if call.condition is not None:
        values = tuple([called("case", [call.condition, value, Literal(Kind.NULL, None)]) for value in values])
    parts = [NamedExpr(-1 - place, value) for place, value in enumerate(values)]
    each = attrs.evolve(call, distinct=False, condition=None, inputs=tuple([part.ref for part in parts]))
    if isinstance(call.form, Sums):
        rows = grouped(relation, [*keys, *parts], ())
    else:
        rows = _first_values(relation, keys, parts[0], call)
        form = carried(call.kind)
        assert form is not None
        each = attrs.evolve(each, form=form)
    return _Pass(rows, [NamedExpr(key.id, key.ref) for key in keys], [each])


def _first_values(relation: Relation, keys: Sequence[NamedExpr], value: NamedExpr, call: AggregateCall) -> Relation:
    """Return the keys of each group and its first value: by numbers, by the order of columns, or by rows."""
    assert isinstance(call.form, First)
    scope, outputs = relation.scope, [*keys, value]
    scalars = [compile_scalar(part.value, scope) for part in outputs]
    columns = tuple(Column("", scalar.kind, scalar.nullable) for scalar in scalars)
    rows = extremes(relation, keys, call)
    if rows is None and keys and held_together(relation.collection):
        read = projected(relation.collection, [scalar.function for scalar in scalars], [part.value for part in outputs], scope)
        ids = tuple(part.id for part in outputs)
        descending = call.form.kernel == "greatest"
        number = row_number([key.ref for key in keys], [SortKey(value.ref, descending)])
        of_each = Relation(read, columns, ids, grows=relation.grows)
        rows = pruned(with_windows(of_each, [NamedExpr(value.id - 1, number)], 1).collection, range(len(outputs)))
    elif rows is None:
        rows = _first(_entries(relation, keys, call), call, grows=relation.grows).map(lambda pair: pair[0] + pair[1])
    return Relation(rows, columns, tuple(part.id for part in outputs))


def _other(relation: Relation, keys: Sequence[NamedExpr], call: AggregateCall) -> Collection[Any, Any]:
    """Return ``(key, (value,))`` of an aggregate that is no number of one pass over the rows."""
    pairs = _entries(relation, keys, call)
    if isinstance(call.form, First):
        return _first(pairs, call, grows=relation.grows)
    return _whole(pairs, call)


_Calls = list[tuple[NamedExpr, AggregateCall]]


def _split(aggregates: Sequence[NamedExpr]) -> tuple[_Calls, _Calls, _Calls]:
    """Return the aggregates that are sums of one pass over the rows, those that are sums of others, and the rest."""
    parts: tuple[_Calls, _Calls, _Calls] = ([], [], [])
    for part in aggregates:
        call = part.value
        assert isinstance(call, AggregateCall)
        if isinstance(call.form, Sums):
            parts[int(call.distinct)].append((part, call))
        else:
            parts[1 if isinstance(call.form, First) and call.form.kernel and carried(call.kind) else 2].append((part, call))
    return parts


def empty_group(aggregates: Sequence[NamedExpr]) -> tuple[Any, ...]:
    """Return the aggregates of ``grouped`` for a group without rows."""
    return tuple(call.empty for calls in _split(aggregates) for _, call in calls)
