"""What a worker keeps of each dataflow: ``DataflowBuild`` from the moment it is opened, ``InstalledDataflow`` from when it
is built.

The first is what the dataflow needs of its worker, the second what the worker needs of the dataflow. The invariant: a dataflow
that is complete or dropped has nothing done later any more, and keeps no state of its operators alive.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from timely.dataflow import Operator, ScopeBuilder, SyncActivator
from timely.dataflow.custom_scope import CustomScope
from timely.dataflow.operator_state import StateRegistry
from timely.dataflow.port_owner import UnreferencedCapabilities
from timely.progress import ProgressExchange
from timely.scopes import Subgraph
from timely.worker.batching import MessageBatcher

if TYPE_CHECKING:
    from timely.worker.turn import Turning

Pointstamp = tuple[int, int, Any]

LONG: Final = 0.001
"""Seconds from which on a turn is long."""


class DataflowBuild:
    """The allocator of one dataflow: numbers its channels in the order in which they are opened."""

    def __init__(self, worker: Turning, number: int) -> None:
        self.index = worker.index
        self.peers = worker.peers
        self.registry: StateRegistry | None = None if worker.state_registries is None else worker.state_registries(number)
        self.channels: list[Callable[[Any, Any, int], None]] = []
        self.labels: list[str] = []
        self.bells: list[SyncActivator] = []
        self.number = number
        self.worker = worker
        self.installed = False
        self.ended = False
        self.mailbag = MessageBatcher(number, worker.tell)
        self.post = self.mailbag.put
        self.unreferenced = UnreferencedCapabilities(self.new_sync_activator)
        self._agenda = worker._agenda

    def wake(self) -> None:
        """Have the dataflow run in the next step."""
        self._agenda.add(self.number)

    def open_channel(self, deliver: Callable[[Any, Any, int], None], label: str) -> int:
        """Open the next channel."""
        self.channels.append(deliver)
        self.labels.append(label)
        return len(self.channels) - 1

    def call_after(self, seconds: float, action: Callable[[], None]) -> None:
        """Have something done later."""
        if not self.ended:
            self.worker.timers.after(seconds, action, self.number)

    def end(self) -> None:
        """Do nothing later any more: the dataflow is complete or dropped, or was never finished."""
        self.ended = True
        self.unreferenced.end()
        if self.worker.timers.entries:
            self.worker.timers.forget(self.number)

    def new_sync_activator(self, action: Callable[[], None]) -> SyncActivator:
        """Return a bell that the worker hears."""
        bell = SyncActivator(action, self.worker)
        self.bells.append(bell)
        return bell


class InstalledDataflow:
    """What a worker keeps of one dataflow until it is complete or dropped."""

    def __init__(self, number: int, scope: ScopeBuilder[Any], building: DataflowBuild) -> None:
        self.number = number
        self.name = scope.name
        self.scope = scope
        self.root: Subgraph[Any, Any] = scope.subgraph
        self.scopes = scope.scopes
        self.channels = building.channels
        self.labels = building.labels
        self.bells = building.bells
        self.end = building.end
        self.mailbag = building.mailbag
        self.exchange: ProgressExchange[Pointstamp] | None = scope.exchange
        self.longest = 16 * LONG
        """Seconds of the longest turn lately, at first a guess: half of that whenever peers were told something for its sake."""

    def discard(self) -> None:
        """Free the state of the operators, also where a program still has handles of the dataflow."""
        with contextlib.ExitStack() as stack:  # all of them, even if one fails
            for subgraph in self.scopes:
                for child in subgraph.children:
                    if isinstance(child.scope, Operator | CustomScope):
                        stack.callback(child.scope.discard)
