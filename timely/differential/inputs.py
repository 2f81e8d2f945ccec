"""Inputs: how a program changes a collection from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from typing_extensions import TypeVar

from timely.dataflow import Capability, OperatorInfo, OutputPort, ScopeBuilder, Stream, check_scope
from timely.differential.updates.rings import Ring
from timely.differential.updates.updates import Update
from timely.errors import CapabilityError, TimestampError, brief, require_package
from timely.operators.generic import source
from timely.operators.resuming import ResumeTime, resume_time
from timely.order import PartialOrder

if TYPE_CHECKING:
    from timely.differential.updates.arrow_tables import Fields

T = TypeVar("T", bound=PartialOrder, default=int)
D = TypeVar("D", default=Any)


class UpdateSender(Generic[T]):
    """Sends updates at the current time, or later ones; both kinds of sessions are made of it."""

    def __init__(
        self, capability: Capability[T], info: OperatorInfo, check: Callable[[object], None], begins: ResumeTime[T] | None
    ) -> None:
        self.time = capability.time
        self.closed = False
        self._capability = capability
        self._info = info
        self._check = check
        self._begins = begins
        self._draft: list[Update] = []
        self._ready: list[tuple[Capability[T], list[Any]]] = []
        self._later: dict[T, tuple[Capability[T], list[Update]]] = {}
        self._abandoned = False
        self._sync_activator = info.activator.new_sync_activator()
        info.at_end(self._discard)

    @property
    def label(self) -> str:
        """The name of the input in errors."""
        return f"input {self._info.name!r} ({self._info.path})"

    def send(self, update: Update) -> None:
        """Send one update at the current time."""
        if not self._draft:
            self._check_open("update", self.time)
        self._draft.append(update)

    def send_batch(self, batch: Any) -> None:
        """Send a container of updates at the current time."""
        self._check_open("update", self.time)
        if self._capability.held:
            self._flush()
            self._ready.append((self._capability.copy(), batch))

    def send_at(self, time: T, update: Update) -> None:
        """Send one update at ``time``, which is at or after the current one."""
        self._check_time("update_at", time)
        if time == self.time:
            self.send(update)
            return
        self._check_open("update_at", time)
        if not self._capability.held:
            return  # the dataflow has been dropped
        if time not in self._later:
            self._later[time] = (self._capability.delayed(time), [])
        self._later[time][1].append(update)

    def advance_to(self, time: T) -> None:
        """Send nothing more before ``time``."""
        self._check_time("advance_to", time)
        if self.closed:
            raise self._is_closed("advance_to")
        if self._capability.held:
            self._flush()
            self._capability.downgrade(time)
        self.time = time

    def flush(self) -> None:
        """Seal what has been sent as one batch."""
        if self._capability.held:
            self._flush()

    def close(self) -> None:
        """Send what waits, and nothing more."""
        self.closed = True
        if self._capability.held:
            self._flush()
            self._capability.drop()

    def abandon(self) -> None:
        """Close it in the next step; may be called at any moment, on any thread."""
        if not self.closed and self._capability.held:
            self._abandoned = True
            self._sync_activator.activate()

    def logic(self, output: OutputPort[T]) -> None:
        """Send everything: the logic of the input's operator."""
        self.flush()
        ready, self._ready = self._ready, []
        later, self._later = self._later, {}
        for capability, batch in [*ready, *later.values()]:
            output.session(capability).give_batch(batch)
            capability.drop()
        if self._abandoned:
            self._capability.drop()

    def _flush(self) -> None:
        if self._draft:
            draft, self._draft = self._draft, []
            self._ready.append((self._capability.copy(), draft))

    def _discard(self) -> None:
        self._draft = []
        self._ready.clear()
        self._later.clear()
        self._capability.drop()

    def _check_open(self, deed: str, time: T) -> None:
        if self.closed:
            raise self._is_closed(deed)
        if self._begins is not None:
            if not self._begins.reached(time):
                raise self._begins.refusal(self._info, time, "advance_to")
            if time == self.time:
                self._begins = None
        self._info.activator.activate()

    def _check_time(self, deed: str, time: T) -> None:
        try:
            self._check(time)
        except TimestampError as error:
            raise TimestampError(f"{deed}: {self.label}: {error}") from None
        if not self.time <= time:
            raise TimestampError(
                f"{deed}: {self.label} is at {brief(self.time)}, and {brief(time)} is not at or after it: nothing was sent"
            )

    def _is_closed(self, deed: str) -> CapabilityError:
        return CapabilityError(f"{deed}: {self.label} was closed at {brief(self.time)}: close it after all that is sent")


class TimedSession(Generic[T]):
    """What both kinds of sessions do with their time."""

    __slots__ = ("_sender",)

    def __init__(self, sender: UpdateSender[T]) -> None:
        self._sender = sender

    @property
    def time(self) -> T:
        """The time of the next change."""
        return self._sender.time

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._sender.closed

    def advance_to(self, time: T) -> None:
        """Advance to ``time``; ``TimestampError`` unless it is at or after the current one."""
        self._sender.advance_to(time)

    def flush(self) -> None:
        """Seal the changes so far as one batch; the next step sends them in any case."""
        self._sender.flush()

    def close(self) -> None:
        """Send what waits, and end the input; a no-op when it is closed."""
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self._sender.abandon()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sender.label}, {'closed' if self.closed else f'at {self.time!r}'})"


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

    def __init__(self, sender: UpdateSender[T], ring: Ring, fields: Fields | None = None) -> None:
        super().__init__(sender)
        self._fields = fields  # of a collection with a schema
        self._ring = ring
        self._one: Any = None if ring.one is None else ring.wrap(ring.one)

    def insert(self, record: D) -> None:
        """Add ``record`` once more; ``DifferenceError`` where differences have no ``one``."""
        if self._one is None:
            self._ring.require("one", "insert")
        if self._fields is not None:
            record = self._fields.checked(record, self._sender.label)
        self._sender.send((record, self._one))

    def remove(self, record: D) -> None:
        """Take ``record`` away once; ``DifferenceError`` where differences have no ``one`` or cannot be negated."""
        if self._one is None or self._ring.negate is None:
            self._ring.require("one", "remove")
            self._ring.require("negate", "remove")
        if self._fields is not None:
            record = self._fields.checked(record, self._sender.label)
        self._sender.send((record, -self._one))

    def update(self, record: D, diff: Any) -> None:
        """Add ``diff`` to the count of ``record``."""
        if self._fields is not None:
            record = self._fields.checked(record, self._sender.label)
        self._sender.send((record, self._ring.wrap(diff)))

    def update_at(self, record: D, time: T, diff: Any) -> None:
        """Add ``diff`` to the count of ``record`` at ``time``; ``TimestampError`` unless it is at or after the current one."""
        if self._fields is not None:
            record = self._fields.checked(record, self._sender.label)
        self._sender.send_at(time, (record, self._ring.wrap(diff)))

    def insert_batch(self, records: Iterable[D]) -> None:
        """Add every one of ``records`` once more."""
        if self._one is None:
            self._ring.require("one", "insert_batch")
        one, fields = self._one, self._fields
        if fields is not None:
            label = self._sender.label
            records = [fields.checked(record, label) for record in records]
        self._sender.send_batch([(record, one) for record in records])

    def insert_columns(self, *columns: Any, diff: Any = 1) -> None:
        """Add the rows of columns: one of records, or two of keys and values, or an Arrow batch or table of one or two columns.

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

        fields, label = self._fields, self._sender.label
        updates: Any
        if fields is None:
            updates = updates_of(columns, diff, label)
        else:
            fields.check_columns(columns, label)
            updates = fields.updates(columns[0], diff, label)
        if self._ring.native is not int or isinstance(updates, list):
            self._sender.send_batch([(record, self._ring.wrap(diff)) for record, diff in updates])
        else:
            self._sender.send_batch(updates)


def new_sender(scope: ScopeBuilder[T], name: str) -> tuple[UpdateSender[T], Stream[T, Any]]:
    """Return a sender, and the stream of its updates."""
    check_scope(scope, name)
    made: list[UpdateSender[T]] = []

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        info.declare_stateless()  # the program sends, and advances, what is not part of the checkpoint
        made.append(UpdateSender(capability, info, scope.subgraph.domain.check, resume_time(scope, info)))
        return made[0].logic

    stream = source(scope, name, constructor)
    return made.pop(), stream
