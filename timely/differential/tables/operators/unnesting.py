"""``UNNEST``: a row for each element of its lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from timely.differential.tables.expressions.bound import Expr, Ref
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import Row, compile_scalar
from timely.differential.tables.values.kinds import Column


def unnested(relation: Relation, lists: Sequence[Expr], elements: Sequence[Ref], *, optional: bool) -> Relation:
    """Return each row beside the elements of its lists, of which shorter ones are filled up with NULL.

    A column more has the numbers of the elements. ``optional`` keeps the rows whose lists have none.
    """
    functions = [compile_scalar(part, relation.scope).function for part in lists]
    numbered, missing = len(elements) > len(lists), (None,) * len(elements)

    def rows(row: Row) -> Iterator[Row]:
        number = 0
        for number, values in enumerate(zip_longest(*(function(row) or () for function in functions)), 1):
            yield (*row, *values, number) if numbered else row + values
        if optional and not number:
            yield row + missing

    columns = [Column("unnest", element.kind, place < len(lists) or optional) for place, element in enumerate(elements)]
    return relation.extended(relation.collection.flat_map(rows, name="unnest"), columns, [ref.id for ref in elements])
