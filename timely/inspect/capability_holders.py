"""Which worker holds what of a dataflow (capabilities, unread records), and which line its thread is at.

Progress tracking counts the pointstamps of all workers together. What one worker holds is found on demand: the garbage collector
lists what refers to an output, and the queues of inputs are read. That is slow, and costs nothing until somebody asks. Other
processes answer for their own workers (:mod:`timely.monitor.local_workers`). A worker that cannot be asked is named, with the
reason.
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
from typing import Any, Final, TypeVar

import attrs

from timely.dataflow import Capability, Operator, OutputPort, ScopeBuilder, SyncActivator
from timely.dataflow.origin import is_ours
from timely.dataflow.spill import waiting
from timely.monitor.dataflow_position import goes_round
from timely.monitor.input_counts import records_sent
from timely.monitor.local_workers import Member, local_workers_of
from timely.worker import Worker
from timely.worker.explanation_data import Description, Port, Position
from timely.worker.gc_control import unfrozen

RECORDS: Final = "records"
"""Asks a process how many records its inputs have sent."""

MOVEMENT: Final = "movement"
"""Asks a process for its ``movement``."""

_SECONDS: Final = 2.0
_MOST: Final = 64
"""Ports that are searched for, at most: each takes time."""

A = TypeVar("A")

_LINES: Final = 8
_TRIES: Final = 3


@attrs.frozen
class Question:
    """Asks what workers hold at these ports of a dataflow, and how the operators of these paths describe their state."""

    dataflow: int
    ports: frozenset[Port]
    paths: frozenset[str] = frozenset()


@attrs.frozen
class Holdings:
    """What one worker holds of a dataflow: capabilities or records by port and time, where its thread is, and its texts.

    ``counts`` is ``None`` if the worker does not have the dataflow.
    """

    worker: int
    counts: Mapping[tuple[Port, Any], int] | None
    position: Position | None
    described: tuple[Description, ...] = ()


class CapabilityHolders:
    """Finds what the workers of a run hold of a dataflow, as far as ``worker`` can ask them.

    ``members`` are the workers of this process, where ``timely.execute`` does not know them. ``unreachable`` maps the workers
    that could not be asked to the reason.
    """

    def __init__(self, worker: Worker, members: Sequence[Member] = ()) -> None:
        company = local_workers_of(worker)
        self._peers = worker.peers
        self._company = company
        self._members = tuple(company.members) if company is not None else members or [Member(worker)]
        self.unreachable: dict[int, str] = {}

    def find(self, scope: ScopeBuilder[Any], ports: Iterable[Port], paths: Iterable[str]) -> list[Holdings]:
        """Return what each reachable worker holds at ``ports`` of the dataflow of ``scope``, with the texts of ``paths``."""
        question = Question(number_of(scope), _first(ports), _first(paths))
        held = holdings(self._members, question)
        why = "in another process, which cannot be asked from here"
        if self._company is not None:
            for place, reply in self._company.ask(question, _SECONDS).items():
                if isinstance(reply, str):
                    self.unreachable.update(dict.fromkeys(self._company.workers_at(place), f"in a process that {reply}"))
                else:
                    held += reply
            if self._company.reaches == self._peers:
                why = "not begun yet"
        known = {each.worker for each in held} | set(self.unreachable)
        self.unreachable.update({index: why for index in range(self._peers) if index not in known})
        return held


def answer(members: Sequence[Member], question: Question | str) -> Any:
    """Return the answer to another process."""
    if isinstance(question, Question):
        return holdings(members, question)
    if question == MOVEMENT:
        return movement(members)
    return sum(records_sent(member.worker) for member in members)


def movement(members: Sequence[Member]) -> int | None:
    """Return a number that changes when anything moves in these workers' dataflows; ``None`` when all are complete.

    Movement is a change of the counts of capabilities and messages, or an operator that reads: records that come and go at one
    time leave the counts unchanged. An operator that runs and reads nothing has not moved.
    """
    try:
        counts = [
            (
                member.worker.index,
                number_of(dataflow),
                *(frozenset(scope.trackers[0].counts().items()) for scope in dataflow.scopes),
                *((at, operator.call) for at, operator in enumerate(operators_of(dataflow)) if operator.has_read),
            )
            for member in tuple(members)
            for dataflow in member.worker.scopes
        ]
    except RuntimeError:  # changed while it was read: it moves
        return monotonic_ns()
    return hash(tuple(counts)) if counts else None


def holdings(members: Sequence[Member], question: Question) -> list[Holdings]:
    """Return what workers of this process hold; of a running worker, at some moment during the call."""
    return [_repeatedly(member, question) for member in tuple(members)]


def _repeatedly(member: Member, question: Question) -> Holdings:
    for _ in range(_TRIES - 1):
        with contextlib.suppress(RuntimeError):  # changed while it was read
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
    return Holdings(worker.index, counts, position(member), tuple(_descriptions(scope, question.paths, worker.index)))


def _first(asked: Iterable[A]) -> frozenset[A]:
    return frozenset(itertools.islice(dict.fromkeys(asked), _MOST))


def _descriptions(scope: ScopeBuilder[Any], paths: frozenset[str], worker: int) -> Iterator[Description]:
    """Yield the texts of the operators of ``paths``, and of those by which records go round the loops around them."""
    for operator in operators_of(scope):
        around = goes_round(operator) and any(path.startswith(f"{operator.scope.path}/") for path in paths)
        if around or operator.path in paths:
            for records in (False, True):
                for text in operator.info.described(records=records):
                    yield Description(operator.path, worker, text, records)


def position(member: Member) -> Position | None:
    """Return where a worker is; ``None`` if it runs on this thread, or its thread is unknown."""
    if member.thread is None or member.thread == threading.get_ident():
        return None
    running = [operator for scope in member.worker.scopes for operator in operators_of(scope) if operator.running]
    operators = tuple(map(named, running))
    with _borrowing(member) as borrowed:
        frame = sys._current_frames().get(member.thread)
        borrowed.append(frame)
        lines = () if frame is None else _lines(frame)
        del frame
    return Position(member.worker.index, operators, lines)


def _lines(frame: FrameType) -> tuple[str, ...]:
    """Return the innermost lines of the program in a stack, without those of the library."""
    stack = traceback.extract_stack(frame)
    begins = max((place for place, line in enumerate(stack) if line.name == "run_worker" and is_ours(line.filename)), default=0)
    lines = [line for line in stack[begins:] if not is_ours(line.filename)]
    return tuple(f"{os.path.basename(line.filename)}:{line.lineno} in {line.name}" for line in lines[-_LINES:])


def named(operator: Operator[Any]) -> str:
    """Return the name of an operator, its path, and the line that built it."""
    return f"{operator.name!r} ({operator.path}, built at {operator.info.origin})"


def operators_of(scope: ScopeBuilder[Any]) -> list[Operator[Any]]:
    """Return the operators of a dataflow, nested ones too."""
    return [child.scope for nested in scope.scopes for child in nested.children if isinstance(child.scope, Operator)]


def number_of(scope: ScopeBuilder[Any]) -> int:
    """Return the number of a dataflow, the same on every worker."""
    building: Any = scope.root.allocator
    number: int = building.number
    return number


@contextlib.contextmanager
def _borrowing(member: Member) -> Iterator[list[object]]:
    """Yield a list for references to what a worker on another thread owns; the worker clears it in its next step.

    The list may come to hold the last reference, and only the worker's own thread may drop a capability.
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
        bell.activate()


def _count_capabilities(ports: Sequence[OutputPort[Any]], counts: Counter[tuple[Port, Any]], borrowed: list[object]) -> None:
    with unfrozen():
        referrers = gc.get_referrers(*ports)
    borrowed.append(referrers)
    for thing in referrers:
        port = thing.port if type(thing) is Capability else None
        if port is not None:
            counts[(port.operator.path, port.index, False), thing.time] += 1
