"""``Activator``: runs one operator again, whether or not there is input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsFloat

from typing_extensions import deprecated

from timely.dataflow.allocator import Allocator
from timely.dataflow.sync_activator import SyncActivator
from timely.errors import ConfigurationError
from timely.scopes import Subgraph


class Activator:
    """Activates one operator, from its worker's thread.

    >>> import timely
    >>> def constructor(capability, info):
    ...     left = [3, 2, 1]
    ...     def logic(output):
    ...         if left:
    ...             output.session(capability).give(left.pop(0))
    ...             info.activator.activate_after(0.001)
    ...         else:
    ...             capability.drop()
    ...     return logic
    >>> timely.example(lambda scope: scope.source("one now and then", constructor))
    [(0, [1, 2, 3])]
    """

    __slots__ = ("_allocator", "_child", "_run_loops", "_scope")

    def __init__(
        self, scope: Subgraph[Any, Any], child: int, allocator: Allocator, run_loops: Callable[[], None] | None = None
    ) -> None:
        self._scope = scope
        self._child = child
        self._allocator = allocator
        self._run_loops = run_loops

    def activate(self) -> None:
        """Have the operator run soon."""
        self._scope.activate(self._child)

    def activate_after(self, seconds: SupportsFloat) -> None:
        """Have the operator run once after so many seconds; a waiting worker wakes up in time.

        ``ConfigurationError`` for negative seconds. A dataflow that is complete before does not wait for it.
        """
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise ConfigurationError(f"activate_after({seconds!r}): give a number of seconds of at least 0")
        self._allocator.call_after(seconds, self.activate)

    def new_sync_activator(self) -> SyncActivator:
        """Return an activator of the operator for any thread."""
        return self._allocator.new_sync_activator(self.activate)

    @deprecated("use new_sync_activator()")
    def bell(self) -> SyncActivator:
        """Return what ``new_sync_activator`` does."""
        return self.new_sync_activator()

    def run_loops(self) -> None:
        """Run those operators now that read this one's output and feed its input, as the feedback of a loop does.

        To be called while the operator runs, for bounded re-entrancy (Naiad section 3.2): what it has sent is in their queues
        then. Operators that are running are left alone.
        """
        if self._run_loops is not None:
            self._run_loops()
