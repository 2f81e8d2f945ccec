"""Linear operators: what they do to a record does not depend on other records, so they keep no state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream
from timely.differential.updates.containers import is_columns
from timely.differential.updates.updates import Container, Kernel, Update
from timely.errors import brief
from timely.operators.generic import unary
from timely.order import PartialOrder

if TYPE_CHECKING:
    from timely.differential.updates.int_columns import Updates

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")
L = TypeVar("L")

Columns: TypeAlias = Callable[["Updates"], Container]


def linear(
    stream: Stream[T, D], name: str, rows: Callable[[Iterable[D]], Container], columns: Columns | None = None
) -> Stream[T, Update]:
    """Return the stream of ``rows(updates)``, or ``columns(updates)`` of containers of columns, at the times of the input."""

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()
        info.declare_collection()
        info.state.function = rows

        def change(updates: Container) -> Container:
            if columns is None or not is_columns(updates):
                return rows(updates)
            try:
                return columns(updates)
            except OverflowError:  # some of the numbers are too large for columns
                return rows(updates)

        def logic(input: InputPort[T, D], output: OutputPort[T]) -> None:
            input.forward(output, change)

        return logic

    return unary(stream, Pipeline, name, constructor)


def delayed(
    stream: Stream[T, Update],
    name: str,
    delay: Callable[[Any], L],
    to: Callable[[T, L], T],
    columns: Kernel | None,
) -> Stream[T, Update]:
    """Return the stream of the updates at ``to(time, delay(record))``; ``columns`` returns the delays of columns."""

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()

        def logic(input: InputPort[T, Update], output: OutputPort[T]) -> None:
            batch: Container
            for capability, batch in input:
                by_delay: dict[L, Container] = {}
                if columns is not None and is_columns(batch):
                    by_delay = batch.by_delay(columns)
                else:
                    for update in batch:
                        by_delay.setdefault(delay(update[0]), []).append(update)
                for late, updates in by_delay.items():
                    with capability.delayed(to(capability.time, late)) as later:
                        output.session(later).give_batch(updates)

        return logic

    return unary(stream, Pipeline, name, constructor)


def as_many_columns(updates: Iterable[Update], name: str) -> Updates:
    """Return a container of updates as columns; ``TypeError`` where they are not whole numbers."""
    from timely.differential.updates.int_columns import from_rows

    rows = list(updates)
    first = rows[0][0]
    int_columns = from_rows(rows, pairs=type(first) is tuple and len(first) == 2)
    if int_columns is None:
        raise TypeError(f"{name} needs whole numbers, or pairs of them, and {brief(first)} came")
    return int_columns
