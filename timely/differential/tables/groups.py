"""``GROUP BY``: counts and sums move into the differences, so a change costs the same in a group of any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.differential.aggregates import Descending, Top
from timely.differential.collections import Collection
from timely.differential.linear import linear
from timely.differential.rings import VECTORS, Vector
from timely.differential.tables.kinds import NUMBERS, Column, Kind
from timely.differential.tables.refusals import only, refusal
from timely.differential.tables.relation import Relation, constant
from timely.differential.tables.scalar_compiler import Function, NameScope, Row, Scalar, compile_condition, compile_scalar
from timely.differential.tables.scalars import decimal_of
from timely.errors import SqlError


@attrs.frozen
class Aggregation:
    """One aggregate of a query: ``count``, ``sum``, ``avg``, ``min`` or ``max`` of ``argument``, where the filter is true."""

    node: exp.Expr
    name: str
    argument: Scalar | None  # None for count(*)
    distinct: bool

    @property
    def column(self) -> Column:
        """The column of its results."""
        if self.name == "count":
            return Column("count", Kind.INTEGER, False)
        if self.name == "avg":
            return Column("avg", Kind.DOUBLE)
        assert self.argument is not None
        kind = self.argument.kind
        return Column(self.name, Kind.INTEGER if self.name == "sum" and kind is Kind.BOOLEAN else kind)

    @property
    def empty(self) -> Any:
        """Its value for no rows."""
        return 0 if self.name == "count" else None


_NAMES: Final[dict[Any, str]] = {exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max"}


def aggregates_in(nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the aggregates in expressions, each once; those of subqueries are not among them."""
    found: dict[exp.Expr, None] = {}
    for node in nodes:
        for part in node.walk(prune=lambda inner: isinstance(inner, exp.Query | exp.AggFunc | exp.Filter | exp.Window)):
            if isinstance(part, exp.AggFunc | exp.Filter):
                found[part] = None
            elif isinstance(part, exp.Window):
                raise refusal(part, "window functions are not supported; ORDER BY with LIMIT, or Table.top for each group, is")
    return list(found)


def _aggregation(node: exp.Expr, scope: NameScope) -> Aggregation:
    condition: Function | None = None
    inner = node
    if isinstance(node, exp.Filter):
        only(node, "this", "expression")
        condition, inner = compile_condition(node.expression.this, scope), node.this
    name = _NAMES.get(type(inner))
    if name is None:
        raise refusal(node, f"the aggregate {inner.key.upper()} is not supported")
    only(inner, "this", "big_int")
    value, distinct = inner.this, isinstance(inner.this, exp.Distinct)
    if isinstance(value, exp.Distinct):
        only(value, "expressions")
        if len(value.expressions) != 1:
            raise refusal(node, "DISTINCT in an aggregate takes one expression")
        value = value.expressions[0]
    argument: Scalar | None = None
    if not isinstance(value, exp.Star) and not (value is None and name == "count"):
        argument = compile_scalar(value, scope)
        if name in ("sum", "avg") and argument.kind not in (*NUMBERS, Kind.NULL, *([Kind.BOOLEAN] if name == "sum" else [])):
            raise refusal(node, f"{name} takes numbers, not {argument.kind.value}")
        if argument.kind is Kind.NULL:
            raise refusal(node, "NULL has no kind here: cast it")
    if condition is not None:
        argument = _where(condition, argument)
    return Aggregation(node, name, argument, distinct and name not in ("min", "max"))


def _where(condition: Function, argument: Scalar | None) -> Scalar:
    value: Function = (lambda row: True) if argument is None else argument.function
    kind = Kind.BOOLEAN if argument is None else argument.kind
    return Scalar(kind, True, lambda row: value(row) if condition(row) else None)


# -- numbers that add up -------------------------------------------------------------------------------------------


def _summand(value: Any) -> Any:
    """Return a number whose sums are exact."""
    if type(value) is int:
        return value
    try:
        return int(value) if type(value) is bool else Fraction(value)
    except (OverflowError, ValueError):
        raise SqlError(f"the sum of {value} and other numbers is not exact") from None


def _coordinates(aggregation: Aggregation, value_of: Function) -> Callable[[Row], tuple[Any, ...]]:
    if aggregation.name == "count":
        return lambda row: (0,) if value_of(row) is None else (1,)

    def summands(row: Row) -> tuple[Any, ...]:
        value = value_of(row)
        return (0, 0) if value is None else (1, _summand(value))

    return summands


def _result(aggregation: Aggregation) -> Callable[[Sequence[Any]], Any]:
    if aggregation.name == "count":
        return lambda sums: sums[0]
    assert aggregation.argument is not None
    kind = aggregation.argument.kind
    if aggregation.name == "avg":
        return lambda sums: float(sums[1]) / sums[0] if sums[0] else None
    if kind is Kind.DECIMAL:
        return lambda sums: decimal_of(sums[1]) if sums[0] else None
    if kind is Kind.DOUBLE:
        return lambda sums: float(sums[1]) if sums[0] else None
    return lambda sums: int(sums[1]) if sums[0] else None


def _sums(
    rows: Collection[Any, Any],
    key: Callable[[Any], Any],
    aggregations: Sequence[Aggregation],
    values: Sequence[Function],
    group_all: bool,
) -> Collection[Any, Any]:
    """Return ``(key, values)`` for aggregates that add up; with ``group_all`` also where there are no rows."""
    parts = [_coordinates(aggregation, value) for aggregation, value in zip(aggregations, values)]
    present = 0 if group_all else 1

    def measured(updates: Any) -> list[Any]:
        return [(key(row), Vector((present, *(x for part in parts for x in part(row)))) * diff) for row, diff in updates]

    measures: Collection[Any, Any] = Collection(linear(rows.stream, "measures", measured), VECTORS)
    if group_all:
        one = constant(rows.scope, [()])
        measures = measures.concat(
            Collection(
                linear(one.stream, "one group", lambda updates: [(key, Vector((diff,))) for key, diff in updates]), VECTORS
            )
        )
    results = [_result(aggregation) for aggregation in aggregations]
    sizes = [1 if aggregation.name == "count" else 2 for aggregation in aggregations]
    width = 1 + sum(sizes)

    def finished(pair: Any) -> Any:
        group, vector = pair
        sums = (*vector, *(0,) * (width - len(vector)))
        found, start = [], 1
        for result, size in zip(results, sizes):
            found.append(result(sums[start : start + size]))
            start += size
        return group, tuple(found)

    return measures.count(name="aggregate").map(finished)


def _extremes(
    rows: Collection[Any, Any], key: Callable[[Any], Any], aggregation: Aggregation, group_all: bool
) -> Collection[Any, Any]:
    assert aggregation.argument is not None
    value = aggregation.argument.function
    pairs = rows.map(lambda row: (key(row), value(row)))
    if group_all:
        pairs = pairs.concat(constant(rows.scope, [((), None)]))
    order = _least if aggregation.name == "min" else _greatest
    return pairs._reduced(Top(1, order), aggregation.name, None).map(lambda pair: (pair[0], (pair[1],)))


def _least(value: Any) -> Any:
    return value is None, value


def _greatest(value: Any) -> Any:
    return value is None, Descending(value)


def _distinct_sums(
    rows: Collection[Any, Any], key: Callable[[Any], Any], aggregation: Aggregation, group_all: bool
) -> Collection[Any, Any]:
    assert aggregation.argument is not None
    value = aggregation.argument.function
    pairs = rows.map(lambda row: (key(row), value(row))).distinct()
    return _sums(pairs, lambda pair: pair[0], [aggregation], [lambda pair: pair[1]], group_all)


# -- groups --------------------------------------------------------------------------------------------------------


def grouped(relation: Relation, keys: Sequence[exp.Expr], nodes: Sequence[exp.Expr]) -> Relation:
    """Return one row for each group: the keys, then the aggregates ``nodes``. Without keys there is always one group."""
    scope = relation.scope
    found = [compile_scalar(node, scope) for node in keys]
    aggregations = [_aggregation(node, scope) for node in nodes]
    functions = [scalar.function for scalar in found]

    def key(row: Row) -> Row:
        return tuple(function(row) for function in functions)

    rows, group_all = relation.collection, not keys
    adding = [
        aggregation for aggregation in aggregations if aggregation.name in ("count", "sum", "avg") and not aggregation.distinct
    ]
    values = [(lambda row: True) if part.argument is None else part.argument.function for part in adding]
    result = _sums(rows, key, adding, values, group_all)
    ordered = list(adding)
    for aggregation in aggregations:
        if aggregation in adding:
            continue
        part = _distinct_sums if aggregation.distinct else _extremes
        result = result.join_map(part(rows, key, aggregation, group_all), lambda group, one, other: (group, one + other))
        ordered.append(aggregation)
    columns = [Column(f"key{index}", scalar.kind, scalar.nullable) for index, scalar in enumerate(found)]
    columns += [aggregation.column for aggregation in ordered]
    places = {node: index for index, node in enumerate([*keys, *(aggregation.node for aggregation in ordered)])}
    return Relation(result.map(lambda pair: pair[0] + pair[1]), tuple(columns), places, relation.tables)


def empty_group(relation: Relation, nodes: Sequence[exp.Expr]) -> tuple[Any, ...]:
    """Return the row of ``grouped`` for a group without rows and without keys."""
    scope = relation.scope
    found = {node: _aggregation(node, scope) for node in nodes}
    adding = [part for part in found.values() if part.name in ("count", "sum", "avg") and not part.distinct]
    others = [part for part in found.values() if part not in adding]
    return tuple(part.empty for part in (*adding, *others))
