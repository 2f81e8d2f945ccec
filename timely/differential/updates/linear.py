"""Linear operators: what they do to a record does not depend on other records, so they keep no state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream
from timely.differential.updates.containers import is_columns
from timely.differential.updates.updates import Update
from timely.errors import brief
from timely.operators.generic import unary
from timely.worker.gc_control import without_full_collections

if TYPE_CHECKING:
    from timely.differential.updates.int_columns import Updates

MANY: Final = 1000
"""Updates that make enough objects for Python's full collections to wait until they are made."""

Rows = Callable[[Iterable[Update]], Any]
Columns = Callable[["Updates"], Any]


def linear(stream: Stream[Any, Update], name: str, rows: Rows, columns: Columns | None = None) -> Stream[Any, Update]:
    """Return the stream of ``rows(updates)``, or ``columns(updates)`` of containers of columns, at the times of the input."""

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()

        def of_batch(updates: Any) -> Any:
            change: Callable[[Any], Any] = columns if columns is not None and is_columns(updates) else rows
            return change(updates) if len(updates) < MANY else without_full_collections(change, updates)

        def logic(input: InputPort[Any, Update], output: OutputPort[Any]) -> None:
            input.forward(output, of_batch)

        return logic

    return unary(stream, Pipeline, name, constructor)


def delayed(
    stream: Stream[Any, Update],
    name: str,
    delay: Callable[[Any], Any],
    to: Callable[[Any, Any], Any],
    columns: Callable[..., Any] | None,
) -> Stream[Any, Update]:
    """Return the stream of the updates at ``to(time, delay(record))``; ``columns`` returns the delays of columns."""

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()

        def logic(input: InputPort[Any, Update], output: OutputPort[Any]) -> None:
            batch: Any
            for capability, batch in input:
                by_delay: dict[Any, Any] = {}
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


def mapped_columns(f: Callable[..., Any], name: str, updates: Updates) -> Any:
    """Return ``f`` of the columns of ``updates``."""
    return updates.mapped(f, name)


def filtered_columns(p: Callable[..., Any], updates: Updates) -> Any:
    """Return the updates for which ``p`` of their columns is true."""
    return updates.chosen_by(p)


def negated_columns(updates: Updates) -> Any:
    """Return updates with all differences negated."""
    return updates.negated()


def as_many_columns(rows: Any, name: str) -> Any:
    """Return a container of updates as columns; ``TypeError`` where they are not whole numbers."""
    from timely.differential.updates.int_columns import from_rows

    rows = list(rows)
    first = rows[0][0]
    int_columns = from_rows(rows, pairs=type(first) is tuple and len(first) == 2)
    if int_columns is None:
        raise TypeError(f"{name} needs whole numbers, or pairs of them, and {brief(first)} came")
    return int_columns
