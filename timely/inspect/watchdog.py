"""``Watchdog``: says by itself why a worker does not get on, when nothing has moved for a while.

It looks on from a thread of its own, so that it also sees an operator that does not return. Movement is any change of what the
worker counts, capabilities and messages alike. The invariant: it only ever reads, so that a worker with a watchdog does what it
would do without; and it speaks once for each time that things have come to a halt.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from timely.dataflow import Operator
from timely.dataflow.origin import is_ours
from timely.errors import ConfigurationError
from timely.inspect.explain import explain
from timely.worker import Worker

_LOG: Final = logging.getLogger(__name__)

_LOOKS: Final = 4
"""How often it looks while nothing has moved for as long as it waits."""


class Watchdog:
    """Watches a worker for as long as its ``with`` block lasts; made on the thread that steps the worker.

    When nothing has moved for ``after`` seconds it calls ``say`` with a text, on a thread of its own: the operator that is
    running, and the line that it is in, or else what each dataflow waits for. By default that goes to the log
    ``timely.inspect.watchdog`` as a warning. ``ConfigurationError`` for a time that is not positive.

    >>> import timely
    >>> from timely.inspect import Watchdog
    >>> worker, heard = timely.Worker(), []
    >>> with worker.dataflow(name="df") as scope:
    ...     numbers, stream = scope.new_input()
    ...     probe = stream.probe()
    >>> now = iter(range(0, 100, 10))
    >>> dog = Watchdog(worker, after=15, say=heard.append, clock=lambda: next(now))
    >>> _ = worker.step()
    >>> for _ in range(4):
    ...     dog.look()
    >>> print(heard[0])  # doctest: +ELLIPSIS
    worker 0: nothing has moved for 20 s
    the end of /df on worker 0 is not reached, because
      - 'input' (/df/input#0, built at ... in <module>) may still send at 0: advance it past that, or close it
          1 on worker 0
    """

    def __init__(
        self,
        worker: Worker,
        after: float = 30.0,
        say: Callable[[str], object] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if not isinstance(after, int | float) or not after > 0:
            raise ConfigurationError(f"Watchdog(after={after!r}): give a number of seconds greater than 0")
        self._worker = worker
        self._after = after
        self._say = say or _LOG.warning
        self._clock = clock
        self._stepper = threading.get_ident()
        self._seen: object = None
        self._since = clock()
        self._has_spoken = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._since = self._clock()
        self._over.clear()
        self._thread = threading.Thread(target=self._watch, name=f"timely watchdog {self._worker.index}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._after / _LOOKS):
            self.look()

    def look(self) -> None:
        """Look once, and speak if nothing has moved for long enough; what the thread does, again and again."""
        now = self._clock()
        seen: object
        try:
            seen = self._movement()
        except RuntimeError:  # something was changed while it was read: it moves
            seen = object()
        if seen != self._seen:
            self._seen, self._since, self._has_spoken = seen, now, False
        elif seen and not self._has_spoken and now - self._since >= self._after:
            try:
                report = self._report()
            except RuntimeError:
                return
            self._has_spoken = True
            self._tell(f"worker {self._worker.index}: nothing has moved for {now - self._since:.0f} s\n{report}")

    def _tell(self, text: str) -> None:
        try:
            self._say(text)
        except Exception:
            _LOG.exception("what the watchdog of worker %d was to tell could not be said:\n%s", self._worker.index, text)

    def _movement(self) -> list[Any]:
        """Return something that changes with every capability and message that comes or goes; empty when all is complete."""
        return [(scope.number, scope.trackers[0].counts()) for dataflow in self._worker.scopes for scope in dataflow.scopes]

    def _report(self) -> str:
        running = [operator for operator in self._operators() if operator.running]
        if running:
            names = " in ".join(f"{operator.name!r} ({operator.path}, built at {operator.info.origin})" for operator in running)
            return f"operator {names} is running and has not returned; it is at\n{self._stack()}"
        return "\n".join(str(explain(self._worker, dataflow)) for dataflow in self._worker.scopes)

    def _operators(self) -> list[Operator[Any]]:
        return [
            child.scope
            for dataflow in self._worker.scopes
            for scope in dataflow.scopes
            for child in scope.children
            if isinstance(child.scope, Operator)
        ]

    def _stack(self) -> str:
        """Return the lines that the worker's thread is in, innermost last, without the library's own."""
        frame = sys._current_frames().get(self._stepper)
        lines = [line for line in traceback.extract_stack(frame) if not is_ours(line.filename)]
        return "\n".join(f"  {os.path.basename(line.filename)}:{line.lineno} in {line.name}" for line in lines[-_LINES:])


_LINES: Final = 8
