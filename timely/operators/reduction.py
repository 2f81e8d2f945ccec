"""``all_reduce``: every worker contributes to a value, and every worker gets the whole of it.

What iterative learning is made of: gradients are summed up, and all workers take the same step. Each worker combines
what it has at a time, tells it to all workers once the time is complete there, and combines what all have told, in the
order of the workers. The invariant: at each time at which anything came on any worker, each worker gets one record, and
all of them the same one, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from timely.dataflow import (
    Capability,
    Exchange,
    OperatorBuilder,
    OperatorInfo,
    OutputPort,
    Pact,
    Pipeline,
    Stream,
    records_of,
    scope_of,
)
from timely.operators.notificator import Notificator
from timely.operators.state_log import keep_here
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")


def all_reduce(stream: Stream[T, D], combine: Callable[[D, D], D]) -> Stream[T, D]:
    """Return the stream that has, at each time at which anything came, one record on each worker: everything that came at
    that time on all workers, combined two by two.

    ``combine`` must be associative. Records of a worker are combined in the order in which they come, those of the
    workers in the order of the workers; where a worker has one record at a time, the result is the same in every run.
    Arrays and batches are records like any other: ``np.add`` of a list with one array for each worker. Sent as containers
    they are read by record; ``stream.map_batch(lambda batch: [batch])`` before it has them combined as wholes. Source: the
    AllReduce of Naiad section 6.2.

    >>> import timely
    >>> def program(worker):
    ...     with worker.dataflow() as scope:
    ...         total = scope.to_stream([1 + worker.index]).apply(timely.operators.all_reduce, int.__add__).capture()
    ...     worker.run()
    ...     return total.extract()
    >>> timely.execute(program, workers=3)
    [[(0, [6])], [(0, [6])], [(0, [6])]]
    """

    def tell(info: OperatorInfo, records: list[D]) -> list[Any]:
        whole = _combined(combine, records)
        return [(peer, info.worker, whole) for peer in range(info.peers)]

    def take(info: OperatorInfo, told: list[tuple[int, int, D]]) -> list[Any]:
        return [_combined(combine, [record for _, _, record in sorted(told, key=lambda message: message[1])])]

    parts = _when_complete(stream, Pipeline, "all_reduce: tell", tell)
    return _when_complete(parts, Exchange(lambda message: message[0]), "all_reduce", take)


def _combined(combine: Callable[[D, D], D], records: list[D]) -> D:
    whole = records[0]
    for record in records[1:]:
        whole = combine(whole, record)
    return whole


def _when_complete(
    stream: Stream[T, D], pact: Pact, name: str, finish: Callable[[OperatorInfo, list[Any]], list[Any]]
) -> Stream[T, Any]:
    """Return the stream of ``finish(info, records)`` for each time that is complete and at which there were any."""
    builder = OperatorBuilder(scope_of(stream, name), name)
    notificator = Notificator([builder.new_input(stream, pact)])
    output = builder.new_output()
    times: dict[T, list[Any]] = {}

    def logic(input: Any, output: OutputPort[T], notificator: Notificator[T]) -> None:
        for came_with, batch in input:
            records = times.get(came_with.time)
            if records is None:
                records = times[came_with.time] = []
                notificator.notify_at(came_with.retain())
            records.extend(records_of(batch))
        for capability, _ in notificator:
            if capability.time in times:
                output.session(capability).give_many(finish(builder.info, times.pop(capability.time)))

    def load(items: Iterable[tuple[T, list[Any]]]) -> None:
        for time, records in items:
            times.setdefault(time, []).extend(records)

    def constructor(capabilities: list[Capability[T]], info: OperatorInfo) -> Callable[..., None]:
        notificator.keep(info, capabilities.pop())
        keep_here(info, times.items, load)
        return logic

    builder.build(constructor, notificator)
    return output
