"""``bulk_synchronous``: a program that all workers run in step, and that exchanges messages with all of them between steps.

A loop with one operator in it, in which a round is a step. The program is a generator: it yields what to send to each worker, and
gets what each worker sent. The invariant: a step begins on a worker once a message of every worker has come there, so all workers
that decide by the same messages decide alike.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import attrs

from timely.dataflow import Exchange, OperatorInfo, Pact, Pipeline, Stream
from timely.errors import StateError
from timely.graphs.gathering import gather, gather_loop
from timely.order import PartialOrder, Product

T = TypeVar("T", bound=PartialOrder)
R = TypeVar("R")

Steps: TypeAlias = Generator[Sequence[Any], list[Any], R]
"""Yields an object for each worker, gets an object of each worker in their order, and returns the result."""

Program: TypeAlias = Callable[[OperatorInfo, list[list[Any]]], Steps[Any]]
"""``program(info, collected)`` gets the containers of each input on this worker, and returns one container in the end."""


class _Message(NamedTuple):
    """What one worker sends another in a step."""

    receiver: int
    sender: int
    content: Any


_by_receiver: Final = Exchange(lambda message: message.receiver)


def bulk_synchronous(name: str, inputs: Sequence[Stream[T, Any]], program: Program) -> Stream[T, Any]:
    """Return the containers that ``program`` returns, one of each worker, at each time at which any worker receives anything.

    All workers run it, also those that receive nothing, and all must take the same number of steps. Each time is for itself.
    Checkpoints in the middle of a loop are refused where a program may be running.

    Source: Valiant, "A bridging model for parallel computation" (1990).

    >>> import timely
    >>> def greatest(info, collected):
    ...     own = max(number for batch in collected[0] for number in batch)
    ...     of_all = yield [own] * info.peers
    ...     return [max(of_all)]
    >>> timely.example(lambda scope: bulk_synchronous("greatest", [scope.to_stream([3, 1, 2])], greatest))
    [(0, [3])]
    """
    running: _Running[T] = _Running(program)
    own: list[tuple[Stream[T, Any], Pact]] = [(stream, Pipeline) for stream in inputs]
    (starts,) = gather(f"{name}: start", own, 1, lambda info, *_: [list(range(info.peers))])
    return gather_loop(
        name, [*own, (starts, Exchange(int))], _by_receiver, running.finish, keep=running.register, whole=_all_came
    )


def _all_came(info: OperatorInfo, time: Product[Any, int], collected: list[list[Any]]) -> bool:
    return time.inner > 0 and sum(map(len, collected[-1])) == info.peers


@attrs.frozen(eq=False)
class _Running(Generic[T]):
    """One worker's programs by outer time."""

    _program: Program
    _steps: dict[T, Steps[Any]] = attrs.field(factory=dict)

    def register(self, info: OperatorInfo) -> None:
        """Register that there is no state between two times: nothing can save a generator in the middle of its steps."""

        def save() -> list[Any]:
            if self._steps:
                raise StateError(f"{info.path}: a program is between two of its steps, where it cannot be saved")
            return []

        info.register_state(save, list, at_rest=True)

    def finish(self, info: OperatorInfo, time: Product[T, int], collected: list[list[Any]]) -> list[Any]:
        """Run a step; return the messages, and the result after the last."""
        *inputs, _, batches = map(list, collected)
        try:
            if time.inner == 0:
                steps = self._steps[time.outer] = self._program(info, inputs)
                contents = next(steps)
            else:
                messages = sorted((message for batch in batches for message in batch), key=lambda message: message.sender)
                assert len(messages) == info.peers, f"{info.path}: {len(messages)} of {info.peers} workers took the same step"
                contents = self._steps[time.outer].send([message.content for message in messages])
        except StopIteration as end:
            del self._steps[time.outer]
            return [[], end.value]
        return [[_Message(receiver, info.worker, content) for receiver, content in enumerate(contents)], []]
