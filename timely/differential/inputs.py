"""Inputs: how a program changes a collection from outside."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from typing_extensions import TypeVar

from timely.differential.updates.rings import Ring
from timely.differential.updates.updates import Diff, Update
from timely.errors import require_package
from timely.native import mypyc_attr
from timely.operators.input_handle import InputHandle
from timely.order import PartialOrder

if TYPE_CHECKING:
    from timely.differential.updates.arrow_tables import Fields

T = TypeVar("T", bound=PartialOrder, default=int)
D = TypeVar("D", default=Any)


@mypyc_attr(allow_interpreted_subclasses=True)
class TimedSession(Generic[T]):
    """What both kinds of sessions do with their time. One that nothing refers to is closed, as its input is."""

    __slots__ = ("_input",)

    def __init__(self, input: InputHandle[T, Update]) -> None:
        self._input = input

    @property
    def time(self) -> T:
        """The time of the next change."""
        return self._input.time

    @property
    def closed(self) -> bool:
        return self._input.closed

    def advance_to(self, time: T) -> None:
        """Advance to ``time``; ``TimestampError`` unless it is at or after the current one."""
        self._input.advance_to(time)

    def flush(self) -> None:
        """Seal the changes so far as one batch; the next step sends them in any case."""
        self._input.flush()

    def close(self) -> None:
        """Send what waits, and end the input; a no-op when it is closed."""
        self._input.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._input.label}, {'closed' if self.closed else f'at {self.time!r}'})"


class InputSession(TimedSession[T], Generic[T, D]):
    """Changes a collection at ``time``, which only advances, until ``close()``.

    ``CapabilityError`` after ``close()``; ``TimestampError`` for a step back, and for changes before the time at which a run
    resumes (``timely.recovery``).

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         numbers, collection = dd.new_collection(scope)
    ...         result = collection.output()
    ...     numbers.insert(3)
    ...     numbers.advance_to(1)
    ...     numbers.remove(3)
    ...     numbers.update("x", 2)
    ...     numbers.close()
    ...     result.changes()
    [(3, 0, 1), (3, 1, -1), ('x', 1, 2)]
    """

    __slots__ = ("_fields", "_one", "_ring")

    def __init__(self, input: InputHandle[T, Update], ring: Ring, fields: Fields | None = None) -> None:
        super().__init__(input)
        self._fields = fields  # of a collection with a schema
        self._ring = ring
        self._one: Any = None if ring.one is None else ring.wrap(ring.one)

    def insert(self, record: D) -> None:
        """Add ``record`` once more; ``DifferenceError`` where differences have no ``one``."""
        if self._one is None:
            self._ring.require("one", "insert")
        if self._fields is not None:
            record = self._fields.checked(record, self._input.label)
        self._input.send((record, self._one))

    def remove(self, record: D) -> None:
        """Take ``record`` away once; ``DifferenceError`` where differences have no ``one`` or cannot be negated."""
        if self._one is None or self._ring.negate is None:
            self._ring.require("one", "remove")
            self._ring.require("negate", "remove")
        if self._fields is not None:
            record = self._fields.checked(record, self._input.label, -1)
        self._input.send((record, -self._one))

    def update(self, record: D, diff: Diff) -> None:
        """Add ``diff`` to the count of ``record``."""
        if self._fields is not None:
            record = self._fields.checked(record, self._input.label, diff)
        self._input.send((record, self._ring.wrap(diff)))

    def update_at(self, record: D, time: T, diff: Diff) -> None:
        """Add ``diff`` to the count of ``record`` at ``time``; ``TimestampError`` unless it is at or after the current one."""
        if self._fields is not None:
            record = self._fields.checked(record, self._input.label, diff)
        self._input.send_at(time, (record, self._ring.wrap(diff)))

    def insert_batch(self, records: Iterable[D]) -> None:
        """Add every one of ``records`` once more."""
        if self._one is None:
            self._ring.require("one", "insert_batch")
        one, fields = self._one, self._fields
        if fields is not None:
            label = self._input.label
            records = [fields.checked(record, label) for record in records]
        self._input.send_batch([(record, one) for record in records])

    def update_batch(self, changes: Iterable[tuple[D, Diff]]) -> None:
        """Add each diff to the count of its record."""
        fields, wrap, label = self._fields, self._ring.wrap, self._input.label
        if fields is not None:
            changes = [(fields.checked(record, label, diff), diff) for record, diff in changes]
        self._input.send_batch([(record, wrap(diff)) for record, diff in changes])

    def insert_columns(self, *columns: Any, diff: Any = 1) -> None:
        """Add the rows of columns: one of records, or two of keys and values; or an Arrow table or DataFrame of such.

        Whole numbers of up to 64 bits stay columns. Others become rows, where missing values are ``None``. ``diff`` is one number
        for all rows, or an array. Needs NumPy. A collection with a schema takes Arrow batches and tables of that schema, and
        their rows are tuples; ``ContainerError`` for others.

        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         edges, collection = dd.new_collection(scope)
        ...         result = collection.output()
        ...     edges.insert_columns([1, 2], [2, 3])
        ...     edges.close()
        ...     result.at(0)
        {(1, 2): 1, (2, 3): 1}
        """
        require_package("numpy", "insert_columns", "arrow")
        from timely.differential.updates.int_columns import updates_of

        fields, label = self._fields, self._input.label
        updates: Any
        if fields is None:
            updates = updates_of(columns, diff, label)
        else:
            fields.check_columns(columns, label)
            updates = fields.updates(columns[0], diff, label)
        if self._ring.native is not int or isinstance(updates, list):
            self._input.send_batch([(record, self._ring.wrap(diff)) for record, diff in updates])
        else:
            self._input.send_batch(updates)
