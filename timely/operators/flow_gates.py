"""Flow control: sources that bound what is in flight, as a probe downstream shows it.

Invariant: on each worker no more than the bound is sent and not passed by the probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import index
from typing import Any, Generic, overload

import attrs

from timely.dataflow import Capability, OperatorInfo, OutputPort, ScopeBuilder, Stream
from timely.errors import ConfigurationError, GraphError, brief
from timely.operators.generic import source
from timely.operators.pending import Pending
from timely.operators.probes import ProbeHandle
from timely.operators.state_registration import SourcePosition, register_list_state
from timely.operators.type_variables import D, T


def check_bound(where: str, name: str, bound: Any) -> int:
    """Return a bound as an ``int``; ``ConfigurationError`` for one that is no whole number of at least 1."""
    try:
        number = 0 if isinstance(bound, bool) else index(bound)
    except TypeError:
        number = 0
    if number < 1:
        raise ConfigurationError(f"{where}: {name}={brief(bound)} lets nothing through: give a whole number of at least 1")
    return number


@attrs.define(eq=False)
class InFlight(Generic[T]):
    """The number of records sent at each time that the probe had not passed when ``settle`` was last called."""

    _probe: ProbeHandle[T]
    counts: Pending[T, int] = attrs.field(factory=Pending)
    records: int = 0

    def add(self, time: T, records: int) -> None:
        self.counts[time] = self.counts.get(time, 0) + records
        self.records += records

    def load(self, items: Iterable[tuple[T, int]]) -> None:
        for time, records in items:
            self.add(time, records)

    def settle(self) -> None:
        for _, records in self.counts.take(lambda time: not self._probe.less_equal(time)):
            self.records -= records


@overload
def iterator_source(
    scope: ScopeBuilder[T],
    name: str,
    batches: Iterable[tuple[T, list[D]]],
    probe: ProbeHandle[T],
    *,
    records: int | None = None,
    times: int | None = None,
) -> Stream[T, D]: ...
@overload
def iterator_source(
    scope: ScopeBuilder[T],
    name: str,
    batches: Iterable[tuple[T, Any]],
    probe: ProbeHandle[T],
    *,
    records: int | None = None,
    times: int | None = None,
) -> Stream[T, Any]: ...
def iterator_source(
    scope: ScopeBuilder[T],
    name: str,
    batches: Iterable[tuple[T, Any]],
    probe: ProbeHandle[T],
    *,
    records: int | None = None,
    times: int | None = None,
) -> Stream[T, Any]:
    """Return the stream of ``batches``, pairs ``(time, container)``, read from the iterator only as far as the bounds allow.

    ``records`` bounds the records, ``times`` the times, that each worker has sent and ``probe`` has not passed. Attach the probe
    downstream. Times never go back. A run that resumes from a checkpoint needs the same iterator, and skips what was sent.
    ``ConfigurationError`` without a bound, or for more records at one time than ``records``, since a time is complete only when
    all of it is sent. ``CapabilityError`` for a time that goes back, ``GraphError`` for a probe that is not attached.

    >>> import timely
    >>> def build(scope):
    ...     stream = timely.operators.iterator_source(scope, "numbers", ((x, [x]) for x in range(3)), probe, records=2)
    ...     stream.probe(probe)
    ...     return stream
    >>> probe = timely.ProbeHandle()
    >>> timely.example(build)
    [(0, [0]), (1, [1]), (2, [2])]
    """
    where = f"iterator_source {name!r}"
    records = None if records is None else check_bound(where, "records", records)
    times = None if times is None else check_bound(where, "times", times)
    if not isinstance(probe, ProbeHandle):
        raise GraphError(f"{where}: probe is to be a timely.ProbeHandle, and is {brief(probe)}")
    if records is None and times is None:
        raise ConfigurationError(f"{where} needs a bound: give records=, times=, or both")

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        in_flight: InFlight[T] = InFlight(probe)
        sent = SourcePosition(info)
        register_list_state(info, in_flight.counts.items, in_flight.load)
        if sent.over:
            capability.drop()
        items: Iterator[tuple[T, Any]] = iter(batches if capability.held else ())
        following: tuple[T, Any] | None = None
        for time, _ in islice(items, sent.count):  # sent before the checkpoint
            capability.downgrade(time)
        probe.wake(info.activator)

        def full(time: T, size: int) -> bool:
            if records is not None and in_flight.counts.get(time, 0) + size > records:
                raise ConfigurationError(
                    f"iterator_source {info.name!r} ({info.path}): there are more than records={records} at time"
                    f" {brief(time)}, which is not complete before all of it is sent; give a larger bound, or finer times"
                )
            if times is not None and time not in in_flight.counts and len(in_flight.counts) >= times:
                return True
            return records is not None and in_flight.records + size > records

        def logic(output: OutputPort[T]) -> None:
            nonlocal following
            in_flight.settle()
            while capability.held:
                following = following or next(items, None)
                if following is None:
                    sent.over = True
                    capability.drop()
                    break
                time, batch = following
                capability.downgrade(time)
                if full(time, len(batch)):
                    break
                following = None
                sent.count += 1
                in_flight.add(time, len(batch))
                output.session(capability).give_batch(batch)

        return logic

    def check_attached() -> None:
        if not probe.attached:
            raise GraphError(f"{where}: its probe is attached to nothing; call stream.probe(handle) where records are done with")

    scope.checks.append(check_attached)
    return source(scope, name, constructor)
