"""Collections as Arrow tables, and records that have a schema. PyArrow is imported by what makes or takes a table.

A record with a schema is a tuple of one value for each field, also where there is only one field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from timely.differential.updates.updates import Container, Diff, Update, in_order
from timely.errors import ContainerError, DifferenceError, SchemaError, brief
from timely.operators.keyed.numbers import canonical

if TYPE_CHECKING:
    import pyarrow as pa

MANY: Final = 1000
"""Updates from which on a result is columns where it can be: few are read sooner as rows."""

COUNT: Final = "count"
"""The name of the last column of a table of records."""


def table_of(
    updates: Iterable[Update], schema: pa.Schema | None, place: str, *, pairs: bool = False, counted: bool = True
) -> pa.Table:
    """Return records as a table, in order where they can be compared: a column a field, and ``count``.

    Without ``counted`` there is no column of counts, and a record is there as often as its count says. ``pairs`` says that
    records are pairs also where there are none. ``ContainerError`` where a column has several types, ``SchemaError`` for values
    that are not of the types of ``schema``, ``DifferenceError`` for counts that no record can have.

    >>> table_of([((1, "a"), 2)], None, "here").to_pydict()
    {'key': [1], 'value': ['a'], 'count': [2]}
    >>> table_of([((1, "a"), 2)], None, "here", counted=False).to_pydict()
    {'key': [1, 1], 'value': ['a', 'a']}
    >>> table_of([("a", 1), ("b", 1)], None, "here").column_names
    ['record', 'count']
    """
    counted_records = in_order(updates, itemgetter(0))
    if not counted and any(count != 1 or type(count) is not int for _, count in counted_records):
        counted_records = [(record, 1) for record, count in counted_records for _ in range(_times(record, count, place))]
    records = [record for record, _ in counted_records]
    import pyarrow as pa

    names = _names(records, pairs) if schema is None else list(schema.names)
    if counted:
        check_no_count(names, place)
    columns: list[Any]
    if schema is not None:
        from timely.dataflow import OutputSchema

        arrays = OutputSchema(place, schema).conform(records).columns
    else:
        columns = [records] if names == ["record"] else list(zip(*records, strict=True)) or [()] * len(names)
        arrays = [_array(column, None, name, place) for column, name in zip(columns, names, strict=True)]
    if not counted:
        return pa.Table.from_arrays(arrays, names) if schema is None else pa.Table.from_arrays(arrays, schema=schema)
    return _table(arrays, [diff for _, diff in counted_records], names, schema, place)


def table_of_changes(containers: Sequence[Container], schema: pa.Schema, place: str, *, counted: bool = True) -> pa.Table | None:
    """Return the records that updates add up to as ``table_of`` does, without making rows of columns.

    ``None`` where that is not sooner, where Arrow does not compare the types, and where ``table_of`` says what is wrong.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from timely.dataflow import OutputSchema
    from timely.differential.updates.row_columns import RowColumns
    from timely.operators.keyed.column_numbers import aggregated, canonical_keys

    if sum(map(len, containers)) < MANY:
        return None
    names, declared = [str(place) for place in range(len(schema))], OutputSchema(place, schema)
    rows = list(chain.from_iterable(updates for updates in containers if not isinstance(updates, RowColumns)))
    try:
        arrays = declared.conform([record for record, _ in rows]).columns
        parts = [[*arrays, pa.array([diff for _, diff in rows], pa.int64())]]
        for updates in containers:
            if isinstance(updates, RowColumns):
                columns = declared.conform(pa.RecordBatch.from_arrays(updates.arrays(), schema.names)).columns
                parts.append([*columns, pa.repeat(pa.scalar(updates.diff), len(updates))])
        table = canonical_keys(pa.concat_tables([pa.Table.from_arrays(arrays, [*names, COUNT]) for arrays in parts]), names)
        if counted or pc.any(pc.less(table[COUNT], 0)).as_py():
            table = aggregated(table, names, [(COUNT, (COUNT, "sum"))])
            table = table.filter(pc.not_equal(table[COUNT], 0))
        ordered = table.take(pc.sort_indices(table, [(name, "ascending") for name in names]))
    except (SchemaError, pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
    if counted:
        check_no_count(schema.names, place)
        return pa.Table.from_arrays(ordered.columns, schema=schema.append(pa.field(COUNT, pa.int64(), nullable=False)))
    counts = ordered[COUNT].to_numpy()
    if (counts < 0).any():
        return None
    if (counts != 1).any():
        ordered = ordered.take(np.repeat(np.arange(len(counts)), counts))
    return pa.Table.from_arrays(ordered.columns[:-1], schema=schema)


def _times(record: object, count: Any, place: str) -> int:
    """Return how often a record is there; ``DifferenceError`` for counts that say nothing of that."""
    if type(count) is int and count > 0:
        return count
    why = "more of it was removed than was there" if type(count) is int else "only whole numbers say how often a record is there"
    raise DifferenceError(f"{place}: {brief(record)} has the count {brief(count)}: {why}; counts=True gives counts as a column")


def check_no_count(names: Sequence[str], place: str) -> None:
    """Raise ``ContainerError`` where a field has the name of the column of counts."""
    if COUNT in names:
        raise ContainerError(f"{place}: a field of its records is called {COUNT!r}, as the column of counts is: rename the field")


def table_of_columns(columns: Sequence[Any], counts: Any, schema: pa.Schema | None, place: str) -> pa.Table:
    """Return a table of columns of whole numbers: the keys, or keys and values."""
    import pyarrow as pa

    names = (["record"] if len(columns) == 1 else ["key", "value"]) if schema is None else list(schema.names)
    return _table([pa.array(column) for column in columns], counts, names, schema, place)


def _table(arrays: list[Any], counts: Any, names: list[str], schema: pa.Schema | None, place: str) -> pa.Table:
    import pyarrow as pa

    whole = all(type(count) is int for count in counts) if isinstance(counts, list) else True
    arrays.append(_array(counts, pa.int64() if whole else None, COUNT, place))
    if schema is None:
        return pa.Table.from_arrays(arrays, names=[*names, COUNT])
    return pa.Table.from_arrays(arrays, schema=schema.append(pa.field(COUNT, arrays[-1].type, nullable=False)))


def _names(records: Sequence[object], pairs: bool) -> list[str]:
    first = records[0] if records else None
    width = 2 if pairs else len(first) if isinstance(first, tuple) else 0
    kinds = {(type(record), len(record)) if isinstance(record, tuple) else (None, 0) for record in records}
    if not width or len(kinds) > 1:
        return ["key", "value"] if pairs and width else ["record"]
    fields = getattr(first, "_fields", None)  # of a named tuple
    if fields is not None:
        return list(fields)
    return ["key", "value"] if width == 2 else [f"field_{number}" for number in range(width)]


def _array(values: Any, kind: Any, name: str, place: str) -> Any:
    import pyarrow as pa

    from timely.dataflow import own_array

    try:
        return own_array(values) if kind is None else pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise ContainerError(f"{place}: column {name!r} cannot be an Arrow array: {error}") from None


class Fields:
    """The schema of records that come in: what is sent is checked against it.

    >>> import pyarrow as pa
    >>> fields = Fields(pa.schema([("name", pa.string())]))
    >>> fields.rows(pa.table({"name": ["ada", None]}))
    [('ada',), (None,)]
    """

    __slots__ = ("_required", "_width", "schema")

    def __init__(self, schema: pa.Schema) -> None:
        names = schema.names
        if not names or len(set(names)) < len(names):
            raise ContainerError(f"a schema has at least one field, and no two of one name: {brief(names)}")
        self.schema = schema
        self._width = len(names)
        self._required = [number for number, field in enumerate(schema) if not field.nullable]

    def checked(self, record: object, label: str, diff: Any = 1) -> Any:
        """Return a record as it is sent ``diff`` times; ``ContainerError`` unless it is a tuple with a value for each field."""
        if not isinstance(record, tuple) or len(record) != self._width:
            raise ContainerError(
                f"{label}: a record is a tuple of its {self._width} fields ({', '.join(self.schema.names)}), not {brief(record)}"
            )
        for number in self._required:
            if record[number] is None:
                raise ContainerError(f"{label}: field {self.schema.names[number]!r} is not nullable: {brief(record)}")
        return record

    def check_columns(self, columns: Sequence[Any], label: str) -> None:
        """Raise ``ContainerError`` unless ``columns`` is one Arrow batch or table with the names and types of the schema."""
        if len(columns) != 1 or not hasattr(columns[0], "column_names"):
            raise ContainerError(f"{label} has a schema, so insert_columns takes one Arrow batch or table, not {brief(columns)}")
        batch = columns[0]
        expected = [(field.name, field.type) for field in self.schema]
        columns_of_batch = [(field.name, field.type) for field in batch.schema]
        if columns_of_batch != expected:
            raise ContainerError(f"{label}: insert_columns takes {_described(expected)}, and {_described(columns_of_batch)} came")
        from timely.dataflow import check_layout, check_moments

        check_layout(batch, label)
        for field, column in zip(self.schema, batch.columns, strict=True):
            check_moments(field.name, column, label)
        for number in self._required:
            if batch.column(number).null_count:
                raise ContainerError(f"{label}: field {self.schema.names[number]!r} is not nullable, and has nulls")

    def updates(self, batch: Container, diff: Diff, label: str) -> Any:
        """Return a batch as updates: ``diff`` is one number for all rows, or an array."""
        from timely.differential.updates.int_columns import paired, updates_of

        if self._whole(batch):
            return updates_of((batch,), diff, label)
        if type(diff) is not int:
            return paired(self.rows(batch), diff, label)
        from timely.differential.updates.row_columns import rows_of_batch

        return rows_of_batch(batch, diff) if diff else []

    def _whole(self, batch: Container) -> bool:
        """Return whether a batch can be columns of pairs: two fields of whole numbers, without nulls."""
        import pyarrow as pa

        return self._width == 2 and all(
            pa.types.is_integer(kind) and not column.null_count
            for kind, column in zip(self.schema.types, batch.columns, strict=True)
        )

    def rows(self, batch: Container) -> list[tuple[object, ...]]:
        return list(zip(*(map(canonical, column.to_pylist()) for column in batch.columns), strict=True))


def _described(fields: Sequence[tuple[str, object]]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in fields) or "no columns"
