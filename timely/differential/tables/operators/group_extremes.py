"""``min`` and ``max`` of groups whose keys and values are whole numbers inside: least and greatest values by columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs
import numpy as np

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline
from timely.differential.collections import Collection
from timely.differential.operators.aggregates import Top, greatest
from timely.differential.tables.expressions.bound import NamedExpr
from timely.differential.tables.expressions.column_compiler import column_expressions
from timely.differential.tables.expressions.column_stages import NULL_KEY, keys_of, staged, unpacked
from timely.differential.tables.expressions.numbered import Numbering, numbering, numberings
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.operators.added_rows import first_of_groups
from timely.differential.tables.operators.aggregations import AggregateCall, First, Sums
from timely.differential.tables.values.kinds import Kind
from timely.differential.updates.containers import is_columns
from timely.differential.updates.int_columns import LARGE, Updates
from timely.differential.updates.row_columns import Fixed, LazyColumn, RowColumns
from timely.differential.updates.updates import Update
from timely.operators.generic import unary

_NULL = 1 << 200
"""The value of ``None``: beyond all others, and below where the greatest is asked for."""


def carried(kind: Kind) -> Sums | None:
    """Return sums that have the value of the one row that a group has, as its number; ``None`` for kinds without numbers."""
    way = _TEXTS if kind is Kind.TEXT else numbering(kind)
    if way is None:
        return None
    of_value, value_of, column_of = way.of_value, way.value_of, way.column_of

    def columns(sums: Sequence[Any]) -> Any:
        return None if not sums[0].all() else column_of(sums[1])

    return Sums(
        2, lambda value: (1, of_value(value)), lambda sums: value_of(sums[1]) if sums[0] else None, columns, 0, way.of_column
    )


def _of_text(text: str) -> int:
    return int.from_bytes(b"1" + text.encode("utf-8", "surrogatepass"), "big")


def _text_of(number: int) -> str:
    return number.to_bytes(number.bit_length() // 8 + 1, "big")[1:].decode("utf-8", "surrogatepass")


_TEXTS: Final = Numbering(
    _of_text, _text_of, lambda column: np.array(list(map(_of_text, column.to_pylist())), object), lambda _: None
)
"""Texts as numbers, which have no order."""


def extremes(relation: Relation, keys: Sequence[NamedExpr], call: AggregateCall) -> Collection[Any, Any] | None:
    """Return rows of the keys and the value of each group, ``None`` where these have no numbers."""
    form, scope = call.form, relation.scope
    of_keys = numberings([key.value.kind for key in keys])
    made = numbering(call.inputs[0].kind) if isinstance(form, First) and form.kernel is not None else None
    values = None if made is None or call.condition is not None else column_expressions(call.inputs, scope)
    if of_keys is None or made is None or values is None or len(keys) > 2 or not isinstance(form, First):
        return None
    joined, entry, kernel = keys_of([key.value for key in keys], [False] * len(keys), scope), call.of_rows(scope), form.kernel
    if joined.columns is None:
        return None
    key_of, columns_of, of_value = joined.function, joined.columns, made.of_value
    missing = -_NULL if kernel == "greatest" else _NULL

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        return [((key_of(row), missing if (value := entry(row)) is None else of_value(value)), diff) for row, diff in updates]

    def by_columns(table: RowColumns) -> Updates | None:
        column, keyed = values(table), columns_of(table)
        if column is None or keyed is None or abs(table.diff) >= LARGE:
            return None
        (value,) = column
        numbers = None if (value.numbers if isinstance(value, Fixed) else value).null_count else made.of_column(value)
        if numbers is None:
            return None
        return Updates(keyed[0], numbers, None if table.diff == 1 else np.full(len(numbers), table.diff))

    pairs = staged(relation.collection, "numbers", by_rows, by_columns)
    top = greatest(1, kernel=kernel) if kernel == "greatest" else Top(1, kernel=kernel)
    results = first_of_groups(pairs, top, call.name, grows=relation.grows)
    return _Decoded(of_keys, made, missing).of(results)


@attrs.frozen
class _Decoded:
    """Makes values of numbers again."""

    keys: Sequence[Numbering]
    value: Numbering
    missing: int

    def of(self, results: Collection[Any, Any]) -> Collection[Any, Any]:
        """Return rows of keys and values."""

        def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
            info.declare_stateless()
            info.declare_collection()

            def logic(input: InputPort[Any, Update], output: OutputPort[Any]) -> None:
                batch: Any
                for capability, batch in input:
                    tables = self._tables(batch) if is_columns(batch) else None
                    with output.session(capability) as session:
                        for container in [self._rows(batch)] if tables is None else tables:
                            session.give_batch(container)

            return logic

        return Collection(unary(results.stream, Pipeline, "values", constructor))

    def _rows(self, updates: Iterable[Update]) -> list[Update]:
        missing, value_of = self.missing, self.value.value_of
        return [((*self._key(key), None if number == missing else value_of(number)), diff) for (key, number), diff in updates]

    def _key(self, key: Any) -> tuple[Any, ...]:
        if len(self.keys) < 2:
            return tuple([None if key is NULL_KEY else way.value_of(key) for way in self.keys])
        return tuple(None if number is None else way.value_of(number) for way, number in zip(self.keys, unpacked(key)))

    def _tables(self, updates: Updates) -> list[RowColumns] | None:
        counts, tables = updates.counts(), []
        for diff in np.unique(counts).tolist():
            part = updates.chosen(counts == diff)
            assert part.values is not None
            keys = unpacked(part.keys) if len(self.keys) == 2 else (part.keys,) * len(self.keys)
            columns = [way.column_of(numbers) for way, numbers in zip(self.keys, keys, strict=True)]
            columns.append(self.value.column_of(part.values))
            if any(column is None for column in columns):
                return None
            tables.append(RowColumns(tuple(map(LazyColumn, columns)), len(part), diff))
        return tables
