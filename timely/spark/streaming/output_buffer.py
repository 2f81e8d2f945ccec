"""Where the batches of one output wait on a worker until their time is complete everywhere.

The invariant: the buffer holds what has arrived and has not been fetched, so that a checkpoint between two epochs holds what
belongs to later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from timely.dataflow import InputPort, OperatorInfo, Pipeline, Stream
from timely.dataflow.operator_state import Piece
from timely.operators import sink


class OutputBuffer:
    """The batches of one output on one worker, by time.

    >>> import timely
    >>> worker = timely.Worker()
    >>> with worker.dataflow(int) as scope:
    ...     words, stream = scope.new_input()
    ...     buffer = OutputBuffer.of(stream, "words")
    >>> words.send_batch(["a"])
    >>> words.advance_to(1)
    >>> while not buffer.complete(0):
    ...     _ = worker.step()
    >>> buffer.fetch(0), buffer.fetch(0), buffer.complete(1)
    ([['a']], [], False)
    """

    def __init__(self) -> None:
        self._batches: dict[int, list[Any]] = {}
        self._input: InputPort[int, Any] | None = None
        self._frontier: Sequence[int] = (0,)

    @classmethod
    def of(cls, stream: Stream[int, Any], name: str) -> OutputBuffer:
        """Return the buffer at the end of a stream, the output ``name``."""
        buffer = cls()
        sink(stream, Pipeline, f"output: {name}", buffer._construct)
        return buffer

    def complete(self, time: int) -> bool:
        """Return whether nothing at or before ``time`` can arrive any more, on any worker."""
        return all(time < element for element in self._frontier)

    def fetch(self, time: int) -> list[Any]:
        """Remove and return the batches of a time, in the order in which they arrived."""
        return self._batches.pop(time, [])

    def _construct(self, info: OperatorInfo) -> Callable[[InputPort[int, Any]], object]:
        info.register_state(self._save, self._load)
        return self._logic

    def _logic(self, input: InputPort[int, Any]) -> None:
        for capability, batch in input:
            self._batches.setdefault(capability.time, []).append(batch)
        self._frontier = list(input.frontier)

    def _save(self) -> list[Piece]:
        """Return the batches, partitioned over the workers: which of them writes a batch makes no difference."""
        waiting = [(time, batch) for time, batches in self._batches.items() for batch in batches]
        return list(enumerate(waiting))

    def _load(self, items: Iterable[tuple[int, Any]]) -> None:
        for time, batch in items:
            self._batches.setdefault(time, []).append(batch)
