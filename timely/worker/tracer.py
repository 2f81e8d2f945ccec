"""``Tracer``: who is told of what a worker does, as it does it; ``timely.inspect.EventLog`` is one.

A worker without one pays for a look at an empty list in each turn, and its operators pay nothing. What an onlooker is told is
told on the worker's thread, and nothing that it does may change what happens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from timely.dataflow import ScopeBuilder
from timely.progress import ProgressBatch

if TYPE_CHECKING:
    from timely.worker.worker import Worker

EVERYWHERE: list[Callable[[Worker], object]] = []
"""Called with each worker that is made in this process: see ``everywhere``."""


class Tracer(Protocol):
    """Looks on while a worker works."""

    def built(self, number: int, scope: ScopeBuilder[Any]) -> None:
        """Take in that a dataflow was built, and has not run yet; ``number`` is what the workers call it among themselves."""

    def told(self, number: int, batch: ProgressBatch[Any]) -> None:
        """Take in that the peers are told what this worker did in a dataflow."""

    def heard(self, number: int, sender: int, batch: ProgressBatch[Any]) -> None:
        """Take in what a peer tells of a dataflow: what it did, and what others did that it passes on."""

    def waited(self, seconds: float) -> None:
        """Take in that the worker had nothing to do for so long."""

    def turned(self) -> None:
        """Take in that a turn of the worker is over."""

    def ended(self, number: int) -> None:
        """Take in that a dataflow is complete here, or was dropped."""


@contextlib.contextmanager
def everywhere(look: Callable[[Worker], object]) -> Iterator[None]:
    """Have ``look(worker)`` called for each worker that this process makes in the ``with`` block, on whatever thread.

    So one can look on at a program that knows nothing of it, by what ``look`` appends to ``worker.tracers``.

    >>> import timely
    >>> from timely.inspect import everywhere
    >>> seen = []
    >>> with everywhere(lambda worker: seen.append(worker.index)):
    ...     _ = timely.execute(lambda worker: None, workers=2)
    >>> sorted(seen)
    [0, 1]
    """
    EVERYWHERE.append(look)
    try:
        yield
    finally:
        EVERYWHERE.remove(look)
