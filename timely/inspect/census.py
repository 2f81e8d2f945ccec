"""Which worker has what of a dataflow: capabilities, unread records; and where its program is: counted when somebody asks.

The runtime counts pointstamps of all workers together, since that is all that progress needs. What a single worker has is found
by looking for the capabilities of an output among all that refers to it, through the garbage collector, and into the queues of
inputs: slow, and at no cost to who does not ask. Other processes do the same for theirs (:mod:`timely.monitor.local_workers`).
The invariant: nothing is counted twice, nothing that is not there is counted, and of a worker whose count is not known that is
said.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic_ns
from types import FrameType
from typing import Any, Final

import attrs

from timely.dataflow import Capability, Operator, OutputPort, ScopeBuilder, SyncActivator
from timely.dataflow.origin import is_ours
from timely.dataflow.spill import waiting
from timely.monitor.input_counts import records_sent
from timely.monitor.local_workers import Member, local_workers_of
from timely.worker import Worker
from timely.worker.explanation import Port, Position
from timely.worker.gc_control import unfrozen

RECORDS: Final = "records"
"""The question how many records the inputs of a process have sent."""

MOVEMENT: Final = "movement"
"""The question what ``movement`` is in a process; any other is a ``Question``."""

_SECONDS: Final = 2.0
_MOST: Final = 64
"""Ports of which is found out who has what, the first of those that are asked about: more takes longer, and nobody reads on."""

_LINES: Final = 8
_TRIES: Final = 3


@attrs.frozen
class Question:
    """What the workers have at these ports of a dataflow, which is called by its number."""

    dataflow: int
    ports: frozenset[Port]


@attrs.frozen
class Holdings:
    """What one worker has of a dataflow: capabilities or records by port and time; and where it is.

    ``counts`` is ``None`` where it does not have the dataflow: not yet, or not any more.
    """

    worker: int
    counts: Mapping[tuple[Port, Any], int] | None
    position: Position | None


class Census:
    """What the workers of a run have of a dataflow, as far as ``worker`` can find out.

    ``members`` are those of this process, unless ``timely.execute`` knows better. ``unheard`` are the workers that nothing could
    be found out about, with the reason.
    """

    def __init__(self, worker: Worker, members: Sequence[Member] = ()) -> None:
        company = local_workers_of(worker)
        self._peers = worker.peers
        self._company = company
        self._members = tuple(company.members) if company is not None else members or [Member(worker)]
        self.unheard: dict[int, str] = {}

    def take(self, scope: ScopeBuilder[Any], ports: Iterable[Port]) -> list[Holdings]:
        """Return what each worker that can be asked has at these ports of the dataflow that ``scope`` is of."""
        question = Question(number_of(scope), frozenset(itertools.islice(dict.fromkeys(ports), _MOST)))
        found = taken(self._members, question)
        why = "in another process, which cannot be asked from here"
        if self._company is not None:
            for place, said in self._company.ask(question, _SECONDS).items():
                if isinstance(said, str):
                    self.unheard.update(dict.fromkeys(self._company.workers_at(place), f"in a process that {said}"))
                else:
                    found += said
            if self._company.reaches == self._peers:
                why = "not begun yet"
        known = {holdings.worker for holdings in found} | set(self.unheard)
        self.unheard.update({index: why for index in range(self._peers) if index not in known})
        return found


def answer(members: Sequence[Member], question: Question | str) -> Any:
    """Return what another process is told about the workers of this one."""
    if isinstance(question, Question):
        return taken(members, question)
    if question == MOVEMENT:
        return movement(members)
    return sum(records_sent(member.worker) for member in members)


def movement(members: Sequence[Member]) -> int | None:
    """Return a number that is another one when something has moved in these workers' dataflows; ``None`` when all are complete.

    What moves is what is counted, capabilities and messages alike, and what operators read: records that come and go at one time
    leave the counts as they were. One that only looks again whether there is something to do has not moved.
    """
    try:
        found = [
            (
                member.worker.index,
                number_of(dataflow),
                *(frozenset(scope.trackers[0].counts().items()) for scope in dataflow.scopes),
                *((at, operator.call) for at, operator in enumerate(operators_of(dataflow)) if operator.has_read),
            )
            for member in tuple(members)
            for dataflow in member.worker.scopes
        ]
    except RuntimeError:  # something was changed while it was read: it moves
        return monotonic_ns()
    return hash(tuple(found)) if found else None


def taken(members: Sequence[Member], question: Question) -> list[Holdings]:
    """Return what workers of this process have of a dataflow.

    They may be running meanwhile: what they have is then as it was at some moment during the count.
    """
    return [_repeatedly(member, question) for member in tuple(members)]


def _repeatedly(member: Member, question: Question) -> Holdings:
    for _ in range(_TRIES - 1):
        with contextlib.suppress(RuntimeError):  # something was changed while it was read
            return _of(member, question)
    return _of(member, question)


def _of(member: Member, question: Question) -> Holdings:
    worker = member.worker
    scope = next((scope for scope in worker.scopes if number_of(scope) == question.dataflow), None)
    if scope is None:
        return Holdings(worker.index, None, position(member))
    counts: Counter[tuple[Port, Any]] = Counter()
    outputs: list[OutputPort[Any]] = []
    for operator in operators_of(scope):
        outputs += [port for port in operator.output_ports if (operator.path, port.index, False) in question.ports]
        for input in operator.input_ports:
            if (operator.path, input.index, True) in question.ports:
                for time, records in waiting(input.queue):
                    counts[(operator.path, input.index, True), time] += records
    if outputs:
        with _borrowing(member) as borrowed:
            _count_capabilities(outputs, counts, borrowed)
    return Holdings(worker.index, counts, position(member))


def position(member: Member) -> Position | None:
    """Return where a worker is; ``None`` if it is this thread's, or nobody knows which thread's it is."""
    if member.thread is None or member.thread == threading.get_ident():
        return None
    running = [operator for scope in member.worker.scopes for operator in operators_of(scope) if operator.running]
    operators = tuple(f"{operator.name!r} ({operator.path}, built at {operator.info.origin})" for operator in running)
    with _borrowing(member) as borrowed:
        frame = sys._current_frames().get(member.thread)
        borrowed.append(frame)
        lines = () if frame is None else _lines(frame)
        del frame
    return Position(member.worker.index, operators, lines)


def _lines(frame: FrameType) -> tuple[str, ...]:
    """Return the last lines of a program that a frame has come through, without the library's own, and what has started it."""
    stack = traceback.extract_stack(frame)
    begins = max((place for place, line in enumerate(stack) if line.name == "run_worker" and is_ours(line.filename)), default=0)
    lines = [line for line in stack[begins:] if not is_ours(line.filename)]
    return tuple(f"{os.path.basename(line.filename)}:{line.lineno} in {line.name}" for line in lines[-_LINES:])


def operators_of(scope: ScopeBuilder[Any]) -> list[Operator[Any]]:
    """Return the operators of a dataflow, those in nested scopes too."""
    return [child.scope for nested in scope.scopes for child in nested.children if isinstance(child.scope, Operator)]


def number_of(scope: ScopeBuilder[Any]) -> int:
    """Return what the workers call a dataflow among themselves."""
    building: Any = scope.root.allocator
    number: int = building.number
    return number


@contextlib.contextmanager
def _borrowing(member: Member) -> Iterator[list[object]]:
    """Give a list for what is looked at of a worker on another thread; the worker lets go of it, in its next step.

    It may give something up meanwhile, so that this is the last to hold it; and to let go of a capability, or of the frame of a
    call in which there is one, is for the worker's own thread. Until then it has somebody outside to wait for.
    """
    borrowed: list[object] = []
    scopes = member.worker.scopes
    if not scopes or member.thread is None or member.thread == threading.get_ident():
        yield borrowed
        return
    building: Any = scopes[0].allocator

    def give_back() -> None:
        building.activators.remove(bell)
        borrowed.clear()

    bell: SyncActivator = building.new_sync_activator(give_back)
    bell.expected = True
    try:
        yield borrowed
    finally:
        bell.ring()


def _count_capabilities(
    ports: Sequence[OutputPort[Any]], counts: Counter[tuple[Port, Any]], borrowed: list[object]
) -> None:
    """Count the capabilities of outputs among all that the garbage collector knows of, what was set aside (``gc.freeze``) too."""
    with unfrozen():
        found = gc.get_referrers(*ports)
    borrowed.append(found)
    for thing in found:
        port = thing.port if type(thing) is Capability else None
        if port is not None:
            counts[(port.operator.path, port.index, False), thing.time] += 1
