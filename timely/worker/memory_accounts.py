"""What one worker holds: what waits at the inputs of its operators, what these keep, and what is between it and its peers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from timely.dataflow import Operator
from timely.dataflow.custom_scope import CustomScope
from timely.dataflow.spill import Queue, SpillQueue
from timely.errors import ErrorSubject
from timely.memory import Account, Footprint
from timely.scopes import Subgraph
from timely.worker.dataflows import InstalledDataflow
from timely.worker.transports import PeerTransport, Transport
from timely.worker.worker_messages import DataMessage

_ENGINE: Final = tuple(
    f"timely.{package}" for package in ("progress", "scopes", "dataflow", "worker", "monitor", "recovery", "inspect", "execution")
)
"""Packages whose objects lead from an operator to all others."""


def accounts_of(transport: Transport, dataflows: Iterable[InstalledDataflow]) -> Iterator[Account]:
    """Yield what one worker holds, by place. Any thread may ask; what is on disk does not count."""
    footprint = Footprint(outside=_ENGINE)
    known = {dataflow.number: dataflow for dataflow in tuple(dataflows)}
    if isinstance(transport, PeerTransport):
        yield from _between(transport, known, footprint)
    for dataflow in known.values():
        for subgraph in dataflow.scopes:
            yield from _inside(subgraph, transport.index, footprint)


def _inside(subgraph: Subgraph[Any, Any], worker: int, footprint: Footprint) -> Iterator[Account]:
    """Yield what the operators of a scope hold."""
    times: dict[int, set[Any]] = {}
    for child, time in subgraph.held():
        times.setdefault(child.index, set()).add(time)
    for child in tuple(subgraph.children):
        operator, held = child.scope, times.get(child.index, set())
        if isinstance(operator, Operator):
            subject = operator.place()
            state, queues = operator.logic, [(port.label, port.queue) for port in operator.input_ports]
            waits = held or {time for port in operator.input_ports if port.observed for time in tuple(port.elements)}
        elif isinstance(operator, CustomScope):
            subject = operator.place()
            state, queues = operator.scope, [(inlet.label, inlet.queue) for inlet in operator.inlets]
            waits = held
        else:
            continue
        for label, queue in queues:
            footprint = footprint.next()
            for time, batch in _waiting(queue):
                footprint.add(batch, time=time)
            yield _account(label, subject, worker, footprint)
        footprint = footprint.next()
        footprint.add(state, held)
        place = f"{subject.kind} {subject.name!r} ({subject.path})"
        yield _account(place, subject, worker, footprint)._replace(waits=_least(waits))


def _least(times: Iterable[Any]) -> tuple[Any, ...]:
    """Return one of the minimal times; none if there is none."""
    least: tuple[Any, ...] = ()
    for time in times:
        if not least or time <= least[0]:
            least = (time,)
    return least


def _waiting(queue: Queue[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the containers in memory that wait at an input, with their times."""
    if isinstance(queue, SpillQueue):
        yield from queue.in_memory()
    else:
        for time, batch, _ in tuple(queue):
            yield time, batch


def _between(transport: PeerTransport, dataflows: dict[int, InstalledDataflow], footprint: Footprint) -> Iterator[Account]:
    """Yield what has arrived and was not delivered, and what peers in other processes have yet to take."""
    nobody = ErrorSubject("worker", f"worker {transport.index}", "", "")
    for place, messages, framed in transport.held():
        footprint = footprint.next()
        for message in messages:
            if isinstance(message, DataMessage):
                footprint.add(message.batch, time=message.time)
        footprint.size += framed
        to = {dataflows[each.dataflow].labels[each.channel] for each in messages if _is_known(each, dataflows)}
        yield _account(f"{place} for {min(to)}" if to else place, nobody, transport.index, footprint)


def _is_known(message: Any, dataflows: dict[int, InstalledDataflow]) -> bool:
    return isinstance(message, DataMessage) and message.dataflow in dataflows


def _account(place: str, subject: ErrorSubject, worker: int, footprint: Footprint) -> Account:
    return Account(place, subject, worker, footprint.size, footprint.records, footprint.times)
