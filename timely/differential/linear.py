"""Linear operators: what they do to a record does not depend on other records, so they keep no state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from timely.dataflow import Capability, InputPort, OperatorInfo, OutputPort, Pipeline, Stream
from timely.differential.updates import Update
from timely.errors import brief
from timely.operators.generic import unary

Updates = Iterable[Update]


def linear(stream: Stream[Any, Any], name: str, f: Callable[[Updates], Any]) -> Stream[Any, Any]:
    """Return the stream of ``f(updates)``, at the times of the input."""

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()

        def logic(input: InputPort[Any, Any], output: OutputPort[Any]) -> None:
            input.forward(output, f)

        return logic

    return unary(stream, Pipeline, name, constructor)


def delayed(stream: Stream[Any, Any], name: str, to: Callable[[Any, Any], Any]) -> Stream[Any, Any]:
    """Return the stream of the updates at ``to(record, time)``, which is at or after their time."""

    def constructor(capability: Capability[Any], info: OperatorInfo) -> Callable[..., object]:
        info.declare_stateless()

        def logic(input: InputPort[Any, Any], output: OutputPort[Any]) -> None:
            for capability, batch in input:
                found: dict[Any, list[Update]] = {}
                for update in batch:
                    found.setdefault(to(update[0], capability.time), []).append(update)
                for time, updates in found.items():
                    with capability.delayed(time) as later:
                        output.session(later).give_batch(updates)

        return logic

    return unary(stream, Pipeline, name, constructor)


def negated(updates: Any) -> Any:
    """Return updates with all differences negated."""
    return [(record, -diff) for record, diff in updates] if isinstance(updates, list) else updates.negated()


def columnar(updates: Any, name: str, f: Callable[[Any], Any]) -> Any:
    """Return ``f(updates)`` of updates as columns; ``TypeError`` where they are not whole numbers."""
    if isinstance(updates, list):
        rows = updates
        updates = rows_as_columns(rows)
        if updates is None:
            raise TypeError(f"{name} needs whole numbers, or pairs of them, and {brief(rows[0][0])} came")
    return f(updates)


def rows_as_columns(rows: list[Update]) -> Any:
    """Return a list of updates as columns, or ``None``."""
    from timely.differential.columns import from_rows

    first = rows[0][0]
    return from_rows(rows, pairs=True) if type(first) is tuple and len(first) == 2 else from_rows(rows, pairs=False)
