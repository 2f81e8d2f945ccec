"""``Activator``: runs one operator again, whether or not there is input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsFloat

import attrs

from timely.dataflow.allocator import Allocator
from timely.dataflow.sync_activator import SyncActivator
from timely.errors import ConfigurationError
from timely.scopes import Subgraph


@attrs.define(eq=False, repr=False)
class Activator:
    """Activates one operator, from its worker's thread."""

    _scope: Subgraph[Any, Any]
    _child: int
    _allocator: Allocator
    _run_loops: Callable[[], None] | None = None
    _waits: bool = False

    def activate(self) -> None:
        """Run the operator soon; one without inputs waits until peers have taken enough of what was sent to them."""
        if not self._waits or not self._allocator.defer(self._activate):
            self._scope.activate(self._child)

    def _activate(self) -> None:
        self._scope.activate(self._child)

    def wait_for_peers(self) -> None:
        """Run the operator, which has no inputs, only when peers take what it sends."""
        self._waits = True

    def activate_after(self, seconds: SupportsFloat) -> None:
        """Run the operator once after ``seconds``; a waiting worker wakes up in time.

        ``ConfigurationError`` for negative seconds. A dataflow that is complete before does not wait for it.
        """
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise ConfigurationError(f"activate_after({seconds!r}): give a number of seconds of at least 0")
        self._allocator.call_after(seconds, self.activate)

    def new_sync_activator(self) -> SyncActivator:
        """Return an activator of the operator for any thread."""
        return self._allocator.new_sync_activator(self.activate)

    def run_loops(self) -> None:
        """Run those operators now that read this one's output and feed its input, for bounded re-entrancy (Naiad section 3.2).

        To be called while the operator runs. Operators that are running are left alone.
        """
        if self._run_loops is not None:
            self._run_loops()
