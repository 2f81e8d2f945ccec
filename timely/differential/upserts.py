"""Upserts: a collection of pairs with one value for each key, which ``set`` replaces and ``delete`` removes.

A time is processed once it is complete, so the times must be totally ordered. Invariant: no key has more than one value.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

from timely.dataflow import ScopeBuilder, check_scope
from timely.differential.inputs import TimedSession
from timely.differential.operators.arrangement import Arrangement, arrange
from timely.differential.updates.rings import INTEGERS
from timely.differential.updates.updates import Key, Update
from timely.errors import TimestampError
from timely.operators.input_handle import InputHandle
from timely.operators.keyed.by_record import check_hashable
from timely.operators.keyed.state_machines import state_machine
from timely.operators.program_inputs import new_input
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder, default=int)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)


class _Call(NamedTuple):
    """A call of the session of a worker; the state of a key has those of its last time by which it has a value."""

    time: object
    worker: int
    present: bool
    value: Any


def _upserted(key: object, call: _Call, calls: tuple[_Call, ...] | None) -> tuple[tuple[_Call, ...] | None, list[Update]]:
    """Return the calls that count after another one, and what it changes. Of one session calls come in their order."""
    if calls is None:
        return ((call,), [((key, call.value), 1)]) if call.present else (None, [])
    left: tuple[_Call, ...] = ()
    if len(calls) > 1 or calls[0].worker != call.worker:
        left = tuple([each for each in calls if each.time == call.time and each.worker != call.worker])
    if call.present:
        left += (call,)
    before = calls[0].value if len(calls) == 1 else max([each.value for each in calls])
    if not left:
        return None, [((key, before), -1)]
    after = left[0].value if len(left) == 1 else max([each.value for each in left])
    return left, [] if before == after else [((key, before), -1), ((key, after), 1)]


class UpsertSession(TimedSession[T], Generic[T, K, V]):
    """Sets and deletes keys at ``time``, which only advances, until ``close()``; from ``from_upserts``.

    Of several calls for one key at one time the last one of a session counts. Among workers the greatest value counts, and a
    value rather than ``delete``.
    """

    __slots__ = ("_worker",)

    def __init__(self, input: InputHandle[T, Any], worker: int) -> None:
        super().__init__(input)
        self._worker = worker

    def set(self, key: K, value: V) -> None:
        """Set ``key`` to ``value``, replacing its earlier value."""
        self._send(key, True, value)

    def delete(self, key: K) -> None:
        """Delete ``key``."""
        self._send(key, False, None)

    def _send(self, key: object, present: bool, value: object) -> None:
        try:
            hash((key, value))
        except TypeError:
            check_hashable([(key, value)])
            raise
        self._input.send((key, _Call(self.time, self._worker, present, value)))


def from_upserts(
    scope: ScopeBuilder[T], *, name: str = "from_upserts", key: Key | None = None
) -> tuple[UpsertSession[T, Any, Any], Arrangement[T, Any, Any]]:
    """Return a session that sets and deletes keys from outside, and the arrangement of the pairs ``(key, value)``.

    ``TimestampError`` for a scope whose times are partially ordered.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         names, arranged = dd.from_upserts(scope)
    ...         result = arranged.as_collection().output()
    ...     names.set("frank", "mcsherry")
    ...     names.advance_to(1)
    ...     names.set("frank", "zappa")
    ...     names.advance_to(2)
    ...     names.delete("frank")
    ...     names.close()
    ...     result.at(0), result.at(1), result.at(2)
    ({('frank', 'mcsherry'): 1}, {('frank', 'zappa'): 1}, {})
    """
    check_scope(scope, name)
    if not scope.subgraph.domain.total:
        raise TimestampError(
            f"{name} in scope {scope.path!r}: which value replaces which is only known for totally ordered times, and"
            f" {scope.subgraph.domain.name} is partially ordered"
        )
    input, stream = new_input(scope, name)
    updates = state_machine(stream, _upserted, key, name="upserts")
    return UpsertSession(input, scope.allocator.index), arrange(updates, INTEGERS, True, key, "arrange_upserts")
