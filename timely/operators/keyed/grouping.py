"""``group_by``: aggregation of Arrow batches by key, on columns.

Each worker first aggregates its own rows, and one row per key and worker is exchanged. Invariant: no row becomes a Python object,
and a time holds at most ``WAITING`` rows, or twice as many as it has keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from timely.dataflow import Exchange, OperatorInfo, Pipeline, Stream
from timely.errors import ContainerError, GraphError, SchemaError, brief, require_package
from timely.operators.keyed.complete_times import by_time
from timely.operators.state_registration import register_list_state, register_row_state
from timely.operators.type_variables import T

if TYPE_CHECKING:
    import pyarrow as pa

    from timely.operators.keyed.column_numbers import Aggregate

WAITING: Final = 1 << 20
"""Rows to collect before they are aggregated with those before them."""

_AGAIN: Final = {"sum": "sum", "product": "product", "min": "min", "max": "max", "any": "any", "all": "all", "count": "sum"}
"""The function that combines partial results, for each function that has one."""


def group_by(stream: Stream[T, Any], keys: str | Sequence[str], /, **columns: tuple[str, str] | str) -> Stream[T, Any]:
    """Return, for each time, Arrow batches with one row per key: the columns ``keys``, and one per keyword.

    A keyword is ``name=(column, function)`` with Arrow's ``sum``, ``product``, ``min``, ``max``, ``any``, ``all`` or ``count``
    (of values that are not missing), or ``name="count"`` for the number of rows; without keywords the result is the distinct
    keys. Rows are exchanged by ``keys``; a missing key is a key; dictionary-encoded columns come back plain. Batches may differ
    in the order of columns, in further columns, and in numeric types, of which the widest is used. Floating-point sums are
    rounded in order of arrival. NaN is one key, so is zero, and ``max`` takes NaN for the greatest. ``GraphError`` for other
    keywords; ``SchemaError`` for columns that Arrow cannot group or combine, and for sums and products of whole numbers and
    decimals that are too large, in all or on one worker: 64 bits, or 38 digits.

    >>> import pyarrow as pa
    >>> import timely
    >>> def build(scope):
    ...     orders, stream = scope.new_input()
    ...     orders.send_batch(pa.record_batch({"customer": ["ann", "bob", "ann"], "amount": [5, 7, 9]}))
    ...     return stream.group_by("customer", orders="count", total=("amount", "sum"))
    >>> timely.example(build)
    [(0, [('ann', 2, 14), ('bob', 1, 7)])]
    """
    require_package("pyarrow", "group_by", "arrow")
    names = [keys] if isinstance(keys, str) else list(keys) if isinstance(keys, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise GraphError(f"group_by takes the name of a column, or a list of names, not {brief(keys)}")
    first = [_described(name, column) for name, column in columns.items()]
    again: list[Aggregate] = [(name, (name, _AGAIN[made[1]] if made else "sum")) for name, made in first]
    if not names or len({*names, *columns}) < len(names) + len(columns):
        raise GraphError(f"group_by needs keys, and columns with other names: it got keys {names} and columns {list(columns)}")

    def register_local(info: OperatorInfo, times: dict[T, PartialAggregates]) -> None:
        register_list_state(info, lambda: _saved(times), lambda items: _load(times, items, parts))

    def register_keyed(info: OperatorInfo, times: dict[T, PartialAggregates]) -> None:
        register_row_state(info, exchange, lambda: _saved(times), lambda items: _load(times, items, groups))

    def parts() -> PartialAggregates:
        return PartialAggregates(names, first, again)

    def groups() -> PartialAggregates:
        return PartialAggregates(names, again, again)

    exchange = Exchange(keys if isinstance(keys, str) else names)
    local = by_time(stream, Pipeline, "group_by (local)", parts, PartialAggregates.add, PartialAggregates.result, register_local)
    return by_time(local, exchange, "group_by", groups, PartialAggregates.add, PartialAggregates.result, register_keyed)


def _described(name: str, column: Any) -> Aggregate:
    match column:
        case "count":
            return name, None
        case (str(source), str(function)) if function in _AGAIN:
            return name, (source, function)
    raise GraphError(
        f'group_by: {name}={column!r} is neither "count" nor a pair of a column and one of {", ".join(_AGAIN)}: other functions'
        " cannot be worked out from those of parts of the rows; a mean is a sum and a count, divided with map_batch"
    )


@attrs.define(eq=False)
class PartialAggregates:
    """The rows of one time, aggregated by key: ``first`` makes results of rows, ``again`` results of results."""

    _keys: Sequence[str]
    _first: Sequence[Aggregate]
    _again: Sequence[Aggregate]
    _waiting: list[pa.RecordBatch] = attrs.field(factory=list)
    _rows: int = 0
    _done: pa.Table | None = None

    def add(self, batch: pa.RecordBatch) -> PartialAggregates:
        """Add rows, and return itself; ``ContainerError`` for anything but an Arrow record batch with the columns."""
        import pyarrow as pa

        if not isinstance(batch, pa.RecordBatch):
            raise ContainerError(
                f"group_by is for Arrow record batches, and what came is a {type(batch).__name__}: use value_counts or aggregate"
                " for records, or make a batch of them with map_batch"
            )
        wanted = _used(self._keys, self._first)
        try:
            self._waiting.append(batch.select(wanted))
        except KeyError as error:
            raise ContainerError(
                f"group_by needs each of the columns {wanted} once, and a batch has {batch.schema.names}"
            ) from error
        self._rows += len(batch)
        if self._rows >= max(WAITING, 0 if self._done is None else len(self._done)):
            self._gather()
        return self

    def load(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        self._add_up(pa.Table.from_batches([batch]))

    def result(self) -> list[pa.RecordBatch]:
        """Return one row for each key."""
        self._gather()
        batches: list[pa.RecordBatch] = self._done.combine_chunks().to_batches() if self._done is not None else []
        return batches

    def _gather(self) -> None:
        from timely.operators.keyed.column_numbers import aggregated  # imports NumPy and Arrow

        if not self._waiting:
            return
        with self._explained(self._first, *self._waiting):
            table = aggregated(together(self._waiting), self._keys, self._first)
        self._waiting, self._rows = [], 0
        self._add_up(table)

    def _add_up(self, table: pa.Table) -> None:
        import pyarrow as pa

        from timely.operators.keyed.column_numbers import aggregated

        if self._done is not None:
            with self._explained(self._again, self._done, table):
                both = pa.concat_tables([self._done, table], promote_options="permissive")
                table = aggregated(both, self._keys, self._again)
        self._done = table

    @contextlib.contextmanager
    def _explained(self, columns: Sequence[Aggregate], *parts: Any) -> Iterator[None]:
        """Raise Arrow's errors as ``SchemaError`` that names the columns and their types."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            types = ", ".join(f"{name!r} of type {_types(name, parts)}" for name in _used(self._keys, columns))
            made = " and ".join(f"{column[1]}({column[0]!r})" for _, column in columns if column)
            what = f" cannot make {made} of the columns " if made else " cannot bring together the columns "
            raise SchemaError(f"group_by{what}{types}: {error}; cast them with map_batch") from error


def _used(keys: Sequence[str], columns: Sequence[Aggregate]) -> list[str]:
    return list(dict.fromkeys([*keys, *(made[0] for _, made in columns if made)]))


def _types(name: str, parts: Sequence[Any]) -> str:
    return " and ".join(dict.fromkeys(str(part.schema.field(name).type) for part in parts))


def together(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return batches as one table without dictionaries, with the widest of differing types."""
    import pyarrow as pa

    try:
        table = pa.Table.from_batches(batches)
    except pa.ArrowInvalid:  # their schemas differ
        return pa.concat_tables([_decoded(pa.Table.from_batches([batch])) for batch in batches], promote_options="permissive")
    return _decoded(table)


def _decoded(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries: Arrow groups wrongly where these differ from batch to batch."""
    import pyarrow as pa

    schema = table.schema
    encoded = [field for field in schema if pa.types.is_dictionary(field.type)]
    for field in encoded:
        schema = schema.set(schema.get_field_index(field.name), field.with_type(field.type.value_type))
    return table.cast(schema) if encoded else table


def _saved(times: dict[T, PartialAggregates]) -> Iterator[tuple[T, pa.RecordBatch]]:
    for time, groups in times.items():
        for batch in groups.result():
            yield time, batch


def _load(
    times: dict[T, PartialAggregates], items: Iterable[tuple[T, pa.RecordBatch]], make: Callable[[], PartialAggregates]
) -> None:
    for time, batch in items:
        times.setdefault(time, make()).load(batch)
