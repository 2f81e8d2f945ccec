"""What workers agree on outside of their dataflows: a barrier that all have reached, and one order of events for all.

Both are dataflows of a few operators, built on every worker, and so need nothing that a program could not do itself. The
invariant of the barrier: no worker is let on before every worker has come. That of the sequencer: every worker sees the same
elements in the same order. A caller makes them on every worker, in the same order as its dataflows, and closes them at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from timely.worker.worker import Worker

D = TypeVar("D")


class Barrier:
    """Lets a worker on when every worker has come: ``wait()``, or ``advance()`` and ask ``reached()`` meanwhile.

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
        """Say that this worker has come, without waiting for the others."""
        self._handle.advance_to(self._handle.time + 1)

    def reached(self) -> bool:
        """Return whether every worker has come as often as this one."""
        return not self._probe.less_than(self._handle.time)

    def wait(self) -> None:
        """Come, and step the worker until every other has come as often."""
        self.advance()
        self._worker.step_while(lambda: not self.reached())

    def close(self) -> None:
        """Come no more; the others are not held up by it."""
        self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Sequencer(Generic[D]):
    """One sequence for all workers: what any of them pushes comes out on every one, in the same order.

    Iterating over it takes off what has come so far and does not wait; step the worker for more. ``preloaded`` elements, the same
    on every worker, come first. What one worker pushes stays in its order. Elements go by way of worker 0, which says what
    comes after what.

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
        """Put an element into the sequence. ``InputClosedError`` after ``close()``."""
        self._handle.send(element)

    def __iter__(self) -> Iterator[D]:
        while self._waiting:
            yield self._waiting.popleft()

    def close(self) -> None:
        """Push no more; what others push still comes."""
        self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
