"""``RowHistory``: the rows of a named table or view, for those who read it in a program that may change.

A relation goes on from the rows that a checkpoint has of it, or begins anew from none, and so does each reader. Invariant: what a
reader has, and what it is sent from the time of the checkpoint on, add up to the rows of the relation. So it is first sent the
rows that the relation goes on from, less those that the reader has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import attrs

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline
from timely.dataflow.info import Load, Log, RelationStart, Rescale, Save, StatePart
from timely.differential.collections import Collection
from timely.differential.operators.arrangement import register_trace
from timely.differential.operators.scope_times import bounds_in
from timely.differential.trace.trace import Trace
from timely.differential.updates.updates import Update
from timely.errors import GraphError
from timely.operators.generic import unary
from timely.operators.state_registration import register_union_state
from timely.order import PartialOrder
from timely.progress import lattice

T = TypeVar("T", bound=PartialOrder)

Changes = Iterable[tuple[Any, Update]]
"""Updates, each with its time."""

Conversion = Callable[[Any], Callable[[Any], Any]]
"""Returns, for the columns that a checkpoint has of a table, the function that makes a row of today of one of its rows."""

ROWS: Final = "rows"
BEGIN: Final = "begin"


class RowHistory(Generic[T]):
    """The rows of the relation ``name``, which others ``read()``; made in the block that names it.

    A view computes its rows anew where it begins anew. A table has them of the checkpoint, by ``conversion`` to ``columns``.
    """

    def __init__(
        self,
        rows: Collection[T, Any],
        name: str,
        start: RelationStart,
        columns: object = None,
        conversion: Conversion | None = None,
    ) -> None:
        self._scope = rows.scope
        if not self._scope.subgraph.domain.total:
            raise GraphError(
                f"{name}: times have a total order in a program that may change (changed='migrate'), and those of scope"
                f" {self._scope.path!r} have none: build it in a dataflow with times of type int"
            )
        if start.time is not None:
            self._scope.subgraph.domain.check(start.time)
        self.name = name
        self._start = start
        self._before: list[tuple[Any, Update]] = []
        self._readers: dict[str, Collection[T, Any]] = {}
        begun = self._sent(rows, BEGIN, lambda info: self._begin(info, columns, conversion))
        arranged = begun.arrange_by_self(name=ROWS)
        self._trace: Trace[T] = arranged.index.trace
        self._rows: Collection[T, Any] = arranged.as_collection()

    def read(self) -> Collection[T, Any]:
        """Return the rows for the relation whose operators are being made: one collection for each."""
        reader = self._scope.identities.current
        if reader not in self._readers:
            self._readers[reader] = self._sent(self._rows, "read", self._missing)
        return self._readers[reader]

    def _begin(self, info: OperatorInfo, columns: object, conversion: Conversion | None) -> Changes:
        """Return the rows that a table goes on from, where its columns were others."""
        columns_before: list[Any] = []
        register_union_state(info, lambda: [columns], columns_before.extend)
        if not self._start.rebuilt:
            return []
        register_union_state(_former(info, BEGIN), lambda: [columns], columns_before.extend)
        trace: Trace[T] = Trace(bounds_in(self._scope), False, list)
        register_trace(_former(info, ROWS), trace, None)
        self._before = list(_changes_of(trace))
        if conversion is None or self._start.dropped:
            return []
        row_of_today = conversion(columns_before[0])
        return [(time, (row_of_today(row), diff)) for time, (row, diff) in self._before]

    def _missing(self, info: OperatorInfo) -> Changes:
        """Return the rows that the relation goes on from, less those that the reader has."""
        reader_goes_on = info.begins is not None
        if self._start.restored:
            return [] if reader_goes_on else _changes_of(self._trace)
        return [(time, (row, -diff)) for time, (row, diff) in self._before] if reader_goes_on else []

    def _sent(self, rows: Collection[T, Any], name: str, first: Callable[[OperatorInfo], Changes]) -> Collection[T, Any]:
        """Return ``rows`` with the changes of ``first(info)``, all of them at the time of the checkpoint or later."""
        begin, lub = self._start.time, lattice(self._scope.time).lub

        def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
            info.declare_stateless()
            info.declare_collection()
            waiting: dict[T, list[Update]] = {}
            for time, update in first(info):
                waiting.setdefault(lub(time, begin), []).append(update)
            held = [(capability.delayed(time), updates) for time, updates in waiting.items()]
            capability.drop()
            if held:
                info.activator.activate()

            def logic(input: InputPort[T, Update], output: OutputPort[T]) -> None:
                self._before.clear()  # the dataflow is built
                while held:
                    own, updates = held.pop()
                    output.session(own).give_batch(updates)
                    own.drop()
                if begin is None:
                    input.forward(output, lambda batch: batch)
                    return
                for came_with, batch in input:
                    with came_with.delayed(lub(came_with.time, begin)) as later:
                        output.session(later).give_batch(batch)

            return logic

        sent = unary(rows.stream, Pipeline, name, constructor)
        return Collection(sent, rows.ring, schema=rows.schema, placement=rows.placement)


def _changes_of(trace: Trace[Any]) -> Iterator[tuple[Any, Update]]:
    records = trace.keys()
    for record in records:
        for _, time, diff in trace.history(record):
            yield time, (record, diff)


@attrs.frozen
class _Former:
    """An operator of a checkpoint, as far as what loads its state knows it."""

    info: OperatorInfo
    operator: str
    worker: int
    peers: int
    path: str
    begins: None = None
    parts: list[StatePart] = attrs.field(factory=list)

    def declare_collection(self) -> None:
        pass

    def register_state(
        self, save: Save | None, load: Load, *, rescale: Rescale | None = None, logged: bool = False, at_rest: bool = False
    ) -> Log:
        part = StatePart(len(self.parts), save, load, rescale, None)
        self.parts.append(part)
        registry = self.info.state.registry
        assert registry is not None
        registry.load_before(self.info, self.operator, part)
        return Log(kept=False)


def _former(info: OperatorInfo, operator: str) -> Any:
    return _Former(info, operator, info.worker, info.peers, info.path)
