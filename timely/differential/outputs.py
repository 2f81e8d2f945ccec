"""``Output``: what a collection holds, for a program to read at complete times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import chain
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, cast

from typing_extensions import TypeVar

from timely.dataflow import (
    Capability,
    InputPort,
    OperatorBuilder,
    OperatorInfo,
    Pact,
    Pipeline,
    ScopeBuilder,
    Stream,
    pandas_frame,
    polars_frame,
)
from timely.dataflow.first_rows import counted_preview
from timely.differential.updates.arrow_tables import MANY
from timely.differential.updates.rings import Ring
from timely.differential.updates.updates import ByUpdate, Container, Diff, Update, in_order, summed_up, to_owner
from timely.differential.why_derivations import Provenance, WhyNot
from timely.errors import (
    CompactedError,
    ConfigurationError,
    GraphError,
    NotCompleteError,
    StalledError,
    TimestampError,
    brief,
    require_package,
)
from timely.monitor.terminal import show_while
from timely.operators.pending import Pending
from timely.operators.state_registration import key_route, resume_time
from timely.order import PartialOrder, linear_extension, reaches
from timely.progress import TimeDomain, lattice
from timely.worker import Worker
from timely.worker.dataflows import DataflowBuild
from timely.worker.internals import runs_elsewhere, sync_activator

if TYPE_CHECKING:
    import pyarrow as pa

    from timely.differential.updates.row_columns import RowColumns

T = TypeVar("T", bound=PartialOrder, default=int)
D = TypeVar("D", default=Any)

Subscriber = Callable[[Any, list[Update]], object]


class _Held(NamedTuple):
    """An update in a checkpoint, at a time that is complete or not."""

    complete: bool
    time: Any
    update: Update


class _Changes:
    """The changes of one time: sums, and rows and columns that are added to them when they are first read as rows."""

    __slots__ = ("_sums", "columns", "rows")

    def __init__(self) -> None:
        self._sums: dict[Any, Diff] = {}
        self.rows: list[Update] = []
        self.columns: list[RowColumns] = []

    def row_sums(self) -> dict[Any, Diff]:
        """Return the rows added up."""
        if self.rows:
            self._fold(self.rows)
            self.rows = []
        return self._sums

    def sums(self) -> dict[Any, Diff]:
        """Return all added up."""
        if self.columns:
            self._fold(chain.from_iterable(self.columns))
            self.columns = []
        return self.row_sums()

    def _fold(self, updates: Iterable[Update]) -> None:
        changes = summed_up(updates)
        if self._sums:
            _add_up(self._sums, changes.items())
        else:
            self._sums = changes

    def add(self, other: _Changes) -> None:
        """Add changes, at a cost that goes with them: columns are kept until as many come as the most that came at once."""
        _add_up(self.row_sums(), other.row_sums().items())
        self.columns += other.columns
        sizes = list(map(len, self.columns))
        if sum(sizes) > 2 * max(sizes, default=0):
            self.sums()

    def __len__(self) -> int:
        return len(self.row_sums()) + sum(map(len, self.columns))


class Output(Generic[T, D]):
    """What a collection holds: this worker's share, or all of it with ``output(worker=0)``; from ``Collection.output()``.

    Equal records are on one worker, so each share has the counts of the whole. Reading steps the worker until the time is
    complete. History begins with the output, or where a run resumes; ``forget(before=time)`` moves that to ``time``.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         words, collection = dd.new_collection(scope)
    ...         lengths = collection.map(len).output()
    ...     for word in ("to", "be", "or", "not"):
    ...         words.insert(word)
    ...     words.advance_to(1)
    ...     words.remove("or")
    ...     words.close()
    ...     lengths.at(0), lengths.at(1), lengths.changes(since=1)
    ({2: 3, 3: 1}, {2: 2, 3: 1}, [(2, 1, -1)])
    """

    def __init__(self, worker: Worker, times: TimeDomain[T], ring: Ring, schema: pa.Schema | None = None) -> None:
        self.schema = schema
        self._worker = worker
        self._times = times
        self._ring = ring
        self._arrived: Pending[T, _Changes] = Pending()
        self._complete: dict[T, _Changes] = {}
        self._base: dict[T, _Changes] = {}  # what was forgotten, by the time that it is read at
        self._since: T | None = None
        self._subscribers: list[Subscriber] = []
        self._port: InputPort[T, Update] | None = None
        self._name = "output"
        self.explainer: Any = None  # of its program, which can run again

    def connect(self, port: InputPort[T, Update], info: OperatorInfo, scope: ScopeBuilder[T], placement: ByUpdate) -> None:
        """Take the port whose frontier says which times are complete, and what a checkpoint has.

        ``placement`` says which worker has an update.
        """
        self._port = port
        self._name = f"output {info.path}"
        begins = resume_time(scope, info)
        if begins is not None:
            self._lub = lattice(scope.time).lub
            self._since = begins.first
        elif scope.parent is None and (start := scope.identities.starts.get(info.relation)) is not None:
            self._since = start.time  # it begins anew, and is sent what came before as of then

        def rescale(parts: Sequence[Iterable[Any]]) -> None:
            saved = chain.from_iterable(parts)
            self._load(item for item in saved if route(item.update) % info.peers == info.worker)

        route = key_route(placement.key)
        info.declare_collection()
        info.state.retains = True
        info.register_state(lambda: ((None, item) for item in self._save()), self._load, rescale=rescale, at_rest=True)

    def _save(self) -> Iterator[_Held]:
        for time, changes in self._changes():
            for update in changes.sums().items():
                yield _Held(True, time, update)
        for time in self._arrived:
            for update in self._arrived[time].sums().items():
                yield _Held(False, time, update)

    def _load(self, items: Iterable[_Held]) -> None:
        since = self._since
        for complete, time, update in items:
            if complete:
                self._base.setdefault(time if since is None else self._lub(time, since), _Changes()).rows.append(update)
            else:
                self._arrived.at(time, _Changes).rows.append(update)

    def logic(self, input: InputPort[T, Update]) -> None:
        """Receive updates, and put together those of complete times."""
        arrived = self._arrived
        batch: Container
        for capability, batch in input:
            changes = arrived.at(capability.time, _Changes)
            alone = None if isinstance(batch, list) else getattr(batch, "alone", None)
            if alone is not None and len(batch) >= MANY:
                changes.columns.append(alone())
            else:
                changes.rows.extend(batch)
        frontier = input.elements
        for time, changes in arrived.take(lambda time: not reaches(frontier, time)):
            if changes.columns or changes.sums():
                self._complete[time] = changes
                for subscriber in self._subscribers:
                    self._send(subscriber, time)

    def _send(self, subscriber: Subscriber, time: T) -> None:
        updates = self._unwrapped(self._complete[time].sums())
        if updates:
            subscriber(time, list(updates.items()))

    def _unwrapped(self, sums: dict[Any, Diff]) -> dict[Any, Diff]:
        unwrap = self._ring.unwrap
        return sums if self._ring.native is not None else {record: unwrap(diff) for record, diff in sums.items()}

    # -- reading ---------------------------------------------------------------------------------------------------

    def wait(self, time: T) -> None:
        """Step the worker until ``time`` is complete.

        ``NotCompleteError`` where it cannot become so by itself: an input has still to be advanced or closed.
        """
        self._check(time)
        if self._is_complete(time):
            return
        try:
            self._worker.step_while(lambda: not self._is_complete(time))
        except StalledError:
            raise NotCompleteError(
                f"{self._name} is not complete at {brief(time)}: its frontier is {self._frontier()}; advance or close the inputs"
                " beyond that time first"
            ) from None

    def at(self, time: T) -> dict[D, Diff]:
        """Return the records and their counts at ``time``, stepping the worker until that is complete.

        ``NotCompleteError`` if it cannot become complete, ``CompactedError`` for a time before what ``forget`` has kept.
        """
        return self._sums(self._read(time))

    def to_arrow(self, at: T | None = None, *, counts: bool = False) -> pa.Table:
        """Return the records at a time, or at the latest complete one, as a table, each as often as it is there.

        With ``counts`` each different record is there once, and the last column, ``count``, says how often it is there. Without,
        ``DifferenceError`` for a count below zero, or one that is no whole number.

        Pairs have columns ``key`` and ``value``, other tuples of one length ``field_0``, ``field_1``, and so on, named tuples and
        records with a schema those of their fields. Others are one column ``record``. Without ``at`` the worker is stepped while
        it has anything to do; ``NotCompleteError`` where no time is complete, or several are and none is the latest. Needs
        PyArrow. Polars, DuckDB and PyArrow read the output itself too, by Arrow's C interface: ``pyarrow.table(output)``.

        >>> import timely
        >>> from timely import differential as dd
        >>> with timely.Worker() as worker:
        ...     with worker.dataflow(int) as scope:
        ...         result = dd.collection(scope, [("a", 1), ("a", 1), ("b", 2)]).output()
        ...     result.to_arrow().to_pydict(), result.to_arrow(counts=True).to_pydict()
        ({'key': ['a', 'a', 'b'], 'value': [1, 1, 2]}, {'key': ['a', 'b'], 'value': [1, 2], 'count': [2, 1]})
        """
        require_package("pyarrow", "to_arrow", "arrow")
        from timely.differential.updates.arrow_tables import table_of, table_of_changes

        changes = self._read(at)
        if self.schema is not None and self._ring.native is int:
            containers = list(chain.from_iterable((each.row_sums().items(), *each.columns) for each in changes))
            table = table_of_changes(containers, self.schema, self._name, counted=counts)
            if table is not None:
                return table
        return table_of(self._sums(changes).items(), self.schema, self._name, counted=counts)

    def to_pandas(self, at: T | None = None, *, counts: bool = False) -> Any:
        """Return what ``to_arrow`` does, as a pandas DataFrame. Needs PyArrow and pandas."""
        return pandas_frame(self.to_arrow(at, counts=counts))

    def to_polars(self, at: T | None = None, *, counts: bool = False) -> Any:
        """Return what ``to_arrow`` does, as a polars DataFrame. Needs PyArrow and polars."""
        return polars_frame(self.to_arrow(at, counts=counts))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the records at the latest complete time to a library that reads Arrow's C interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _settle(self) -> None:
        """Step the worker while it has anything to do, once at least: one that has failed raises."""
        self._worker.step()
        while not self._worker.idle:
            self._worker.step()

    def _read(self, time: T | None) -> list[_Changes]:
        """Return what is held at a time, or at the latest complete one, when that is complete."""
        if time is not None:
            self.wait(time)
            self._check_remembered(time)
            return [changes for other, changes in self._changes() if other <= time]
        self._settle()
        return self._latest()

    def _latest(self) -> list[_Changes]:
        """Return what is held at the latest complete time."""
        frontier = self._frontier()
        if frontier == [self._times.minimum]:
            raise NotCompleteError(f"{self._name} is complete at no time yet: advance or close the inputs first")
        if frontier and not self._times.total:
            raise NotCompleteError(f"{self._name} has no latest complete time: its frontier is {frontier}; say which with at=")
        return [changes for _, changes in self._changes()]

    def why(self, row: D, time: T | None = None) -> Provenance:
        """Return why ``row`` is there, at ``time`` or now: rows of the inputs over which alone the program has it.

        ``ConfigurationError`` where it is not there, and of outputs but those of a ``timely.differential.Explainer``.
        """
        answer: Provenance = self._asked("why").why(row, time)
        return answer

    def why_not(self, row: D | Callable[[D], object]) -> WhyNot:
        """Return where the last candidates of ``row``, or of rows that pass a test, are dropped; the errors are as of ``why``."""
        answer: WhyNot = self._asked("why_not").why_not(row)
        return answer

    def _asked(self, name: str) -> Any:
        if self.explainer is None:
            raise ConfigurationError(
                f"{self._name}: {name} runs the program again over rows of its inputs, which no dataflow keeps: ask the output of"
                " timely.differential.Explainer(program, inputs)"
            )
        return self.explainer

    def changes(self, since: T | None = None) -> list[tuple[D, T, Diff]]:
        """Return ``(record, time, diff)`` for the complete times from ``since`` on, in order of time and of record.

        Without ``since``, from where its history begins; ``CompactedError`` for a time before that. The worker is stepped while
        it has anything to do; with peers, ``wait`` for a time that they have to complete too.
        """
        if since is not None:
            self._check(since)
            self._check_remembered(since)
        self._settle()
        changes: list[tuple[D, T, Diff]] = []
        for time in linear_extension(self._complete):
            if since is None or since <= time:
                changes += [
                    (record, time, diff) for record, diff in in_order(self._unwrapped(self._complete[time].sums()).items())
                ]
        return changes

    def subscribe(self, f: Callable[[T, list[tuple[D, Diff]]], object]) -> None:
        """Call ``f(time, [(record, diff), ...])`` once for each complete time with changes, in order.

        It begins where the output's history does, as ``changes()``.
        """
        for time in linear_extension(self._complete):
            self._send(f, time)
        self._subscribers.append(f)

    def forget(self, before: T) -> None:
        """Give up the history before the complete time ``before``; what is held or changes then and later can still be read."""
        self.wait(before)
        bases = [self._base.pop(time) for time in list(self._base) if time <= before]
        base = self._base[before] = max(bases, key=len, default=_Changes())  # what changes costs, not what stays
        changes = [self._complete.pop(time) for time in list(self._complete) if time <= before and time != before]
        for other in chain(bases, changes):
            if other is not base:
                base.add(other)
        self._since = before if self._since is None else lattice(self._times.spec).lub(self._since, before)

    def _changes(self) -> Iterator[tuple[T, _Changes]]:
        """Return what was forgotten and what was not, by time."""
        return chain(self._base.items(), self._complete.items())

    def _sums(self, changes: Sequence[_Changes]) -> dict[D, Diff]:
        sums: dict[D, Diff] = changes[0].sums().copy() if changes else {}
        for each in changes[1:]:
            _add_up(sums, each.sums().items())
        return self._unwrapped(sums)

    @property
    def done(self) -> bool:
        """Whether every time is complete."""
        return self._port is not None and not self._port.elements and not self._arrived

    # -- times -----------------------------------------------------------------------------------------------------

    def _frontier(self) -> list[T]:
        return [] if self._port is None else list(self._port.elements)

    def _is_complete(self, time: T) -> bool:
        return self._port is None or (
            not reaches(self._port.elements, time) and not self._arrived.has_due(lambda other: bool(other <= time))
        )

    def _check_remembered(self, time: T) -> None:
        if self._since is not None and not self._since <= time:
            raise CompactedError(
                f"{self._name} has forgotten what it was at {brief(time)}: its history begins at {brief(self._since)}"
            )

    def _check(self, time: object) -> None:
        try:
            self._times.check(time)
        except TimestampError as error:
            raise TimestampError(f"{self._name}: {error}") from None

    def __repr__(self) -> str:
        return f"Output({self._name!r}, frontier={self._frontier()})"

    def _first_rows(self) -> str:
        """Return the first rows at the latest complete time as HTML, each with how often it is there."""
        try:
            sums: dict[Any, Diff] = self._sums(self._latest())
        except NotCompleteError as error:
            return f"<pre>{escape(str(error))}</pre>"
        names = () if self.schema is None else self.schema.names
        return counted_preview(names, sums.items(), len(sums)).html()

    def _repr_html_(self) -> str:
        if not runs_elsewhere(self._worker):
            self._settle()
            return self._first_rows()
        answers: SimpleQueue[str] = SimpleQueue()
        sync_activator(self._worker, lambda: answers.put(self._first_rows())).activate()
        try:
            return answers.get(timeout=1.0)
        except Empty:
            return f"<pre>{escape(repr(self))}: its worker takes no step</pre>"

    def _ipython_display_(self) -> None:
        show_while(self, lambda: not self.done and runs_elsewhere(self._worker))


def _add_up(sums: dict[Any, Any], changes: Iterable[Update]) -> None:
    """Add changes to sums, of which none is zero."""
    for record, diff in changes:
        total = sums[record] + diff if record in sums else diff
        if total:
            sums[record] = total
        else:
            sums.pop(record, None)


def worker_of(scope: ScopeBuilder[Any]) -> Worker:
    """Return the worker that runs the dataflow of ``scope``."""
    worker = cast("DataflowBuild", scope.root.allocator).worker
    if not isinstance(worker, Worker):
        raise GraphError(f"scope {scope.path!r} is not a dataflow of a timely.Worker")
    return worker


def output(
    stream: Stream[T, Update],
    ring: Ring,
    worker: int | None,
    name: str,
    schema: pa.Schema | None = None,
    placement: ByUpdate | None = None,
) -> Output[T, Any]:
    """Return the output of a stream of updates; ``placement`` says which worker has one, where that is known."""
    scope = stream.scope
    result: Output[T, Any] = Output(worker_of(scope), scope.subgraph.domain, ring, schema)
    target = to_owner(worker) if placement is None or worker is not None else placement
    pact: Pact = Pipeline if target is placement else target
    builder: OperatorBuilder[T] = OperatorBuilder(scope, name)
    port = builder.new_input(stream, pact)

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., object]:
        result.connect(port, info, scope, target)
        return result.logic

    builder.build(constructor)
    return result
