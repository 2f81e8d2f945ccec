"""``Barrier`` and ``Sequencer``: coordination outside of a program's dataflows, each a small dataflow of its own.

Make them on every worker, in the same order as the dataflows, and close them at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from timely.operators import InputHandle
from timely.worker.worker import Worker

D = TypeVar("D")


class _Entered:
    """Is closed at the end of a ``with`` block; the others do not wait for an input that is closed."""

    _handle: InputHandle[Any, Any]

    def close(self) -> None:
        """Leave; what others send still arrives."""
        self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Barrier(_Entered):
    """Blocks each worker until every worker has arrived: ``wait()``, or ``advance()`` and then poll ``reached()``.

    >>> import timely
    >>> def program(worker):
    ...     arrived.append(worker.index)
    ...     with timely.Barrier(worker) as barrier:
    ...         barrier.wait()
    ...         return len(arrived)
    >>> arrived = []
    >>> timely.execute(program, workers=3)
    [3, 3, 3]
    """

    def __init__(self, worker: Worker) -> None:
        with worker.dataflow(int, name="barrier") as scope:
            self._handle, stream = scope.new_input()
            self._probe = stream.probe()
        self._worker = worker

    def advance(self) -> None:
        """Arrive, without waiting for the others."""
        self._handle.advance_to(self._handle.time + 1)

    def reached(self) -> bool:
        """Return whether every worker has arrived as often as this one."""
        return not self._probe.less_than(self._handle.time)

    def wait(self) -> None:
        """Arrive, and step the worker until every other has arrived as often."""
        self.advance()
        self._worker.step_while(lambda: not self.reached())


class Sequencer(_Entered, Generic[D]):
    """One sequence for all workers: every worker sees all pushed elements in the same order.

    Iteration removes what has arrived and never waits; step the worker for more. ``preloaded`` elements, the same on every
    worker, come first. Elements of one worker stay in order. Worker 0 determines the order.

    >>> import timely
    >>> def program(worker):
    ...     seen = []
    ...     with timely.Sequencer(worker, ["start"]) as sequence:
    ...         sequence.push(f"from {worker.index}")
    ...         while len(seen) < 4:
    ...             worker.step()
    ...             seen.extend(sequence)
    ...     return seen
    >>> one, two, three = timely.execute(program, workers=3)
    >>> one == two == three, one[0], sorted(one[1:])
    (True, 'start', ['from 0', 'from 1', 'from 2'])
    """

    def __init__(self, worker: Worker, preloaded: Iterable[D] = ()) -> None:
        self._waiting: deque[D] = deque(preloaded)
        with worker.dataflow(int, name="sequencer") as scope:
            self._handle, stream = scope.new_input()
            stream.exchange(lambda element: 0).broadcast().inspect(self._waiting.append)

    def push(self, element: D) -> None:
        """Append an element. ``CapabilityError`` after ``close()``."""
        self._handle.send(element)

    def __iter__(self) -> Iterator[D]:
        while self._waiting:
            yield self._waiting.popleft()
