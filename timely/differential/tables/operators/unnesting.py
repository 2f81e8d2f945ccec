"""``UNNEST``: a row for each element of its lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.differential.tables.expressions.bound import Expr, Ref
from timely.differential.tables.expressions.column_compiler import column_expressions
from timely.differential.tables.expressions.column_stages import staged
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import Row, compile_scalar
from timely.differential.tables.values.kinds import Column
from timely.differential.updates.row_columns import LazyColumn, RowColumns
from timely.differential.updates.updates import Update


def unnested(relation: Relation, lists: Sequence[Expr], elements: Sequence[Ref], *, optional: bool) -> Relation:
    """Return each row beside the elements of its lists, of which shorter ones are filled up with NULL.

    A column more has the numbers of the elements. ``optional`` keeps the rows whose lists have none.
    """
    functions = [compile_scalar(part, relation.scope).function for part in lists]
    kernels = None if optional or len(lists) > 1 else column_expressions(lists, relation.scope)
    numbered, missing = len(elements) > len(lists), (None,) * len(elements)

    def rows(row: Row) -> Iterator[Row]:
        number = 0
        for number, values in enumerate(zip_longest(*(function(row) or () for function in functions)), 1):
            yield (*row, *values, number) if numbered else row + values
        if optional and not number:
            yield row + missing

    def by_rows(updates: Iterable[Update]) -> list[Update]:
        return [(longer, diff) for row, diff in updates for longer in rows(row)]

    def by_columns(table: RowColumns) -> RowColumns | None:
        arrays = None if kernels is None else kernels(table)
        if arrays is None:
            return None
        lengths = pc.list_value_length(arrays[0]).fill_null(0).to_numpy()
        more = [LazyColumn(arrays[0].flatten())]
        if numbered:
            more.append(LazyColumn(pa.array(np.arange(1, lengths.sum() + 1) - np.repeat(lengths.cumsum() - lengths, lengths))))
        longer = table.chosen(np.repeat(np.arange(len(table)), lengths))
        return longer.with_columns((*longer.columns, *more))

    unnest = staged(relation.collection, "unnest", by_rows, by_columns if kernels is not None else None)
    columns = [Column("unnest", element.kind, place < len(lists) or optional) for place, element in enumerate(elements)]
    return relation.extended(unnest, columns, [ref.id for ref in elements])
