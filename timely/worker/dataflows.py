"""What a worker holds of each dataflow: ``DataflowBuild`` from when it is opened, ``InstalledDataflow`` from when it is built.

The first is what the dataflow needs of its worker, the second what the worker needs of the dataflow. Invariant: a dataflow that
is complete or dropped does nothing later, and keeps no state of its operators alive.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any, Protocol

from timely.dataflow import Operator, ScopeBuilder, SyncActivator
from timely.dataflow.custom_scope import CustomScope
from timely.dataflow.info import StateRegistry
from timely.dataflow.port_owner import UnreferencedCapabilities
from timely.progress import ActivationQueue, ProgressExchange
from timely.scopes import Subgraph
from timely.worker.batching import MessageBatcher
from timely.worker.gc_control import without_full_collections
from timely.worker.transports import Transport


class Timers:
    """What a worker does later, in the seconds of ``clock()``, which never goes back: once each, in the order they are due."""

    __slots__ = ("_clock", "_number", "entries")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.entries: list[tuple[float, int, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def after(self, seconds: float, action: Callable[[], None], owner: int) -> None:
        """Call ``action()`` after so many seconds, on behalf of ``owner``."""
        heapq.heappush(self.entries, (self._clock() + seconds, next(self._number), owner, action))

    def forget(self, owner: int) -> None:
        """Cancel all actions of ``owner``."""
        self.entries = [entry for entry in self.entries if entry[2] != owner]
        heapq.heapify(self.entries)

    def pause(self) -> float | None:
        """Return the seconds until something is due; ``None`` if nothing ever is."""
        return max(0.0, self.entries[0][0] - self._clock()) if self.entries else None

    def run_due(self) -> None:
        now = self._clock()
        while self.entries and self.entries[0][0] <= now:
            heapq.heappop(self.entries)[3]()


Pointstamp = tuple[int, int, Any]


class NumberedWorker(Protocol):
    """A worker, as far as a dataflow knows it."""

    index: int
    peers: int


class SyncActivations:
    """The host of a worker's ``SyncActivator`` objects."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.thread = get_ident()
        self.pending: deque[SyncActivator] = deque()  # whose appends and pops are atomic

    def receive_activation(self, activator: SyncActivator) -> None:
        """Run an activator in the next step, and wake the worker if it waits. Any thread may call this."""
        self.pending.append(activator)
        self._transport.wake()

    def run(self) -> None:
        """Run the activators that are pending now."""
        for _ in range(len(self.pending)):
            self.pending.popleft().deliver()


class DataflowBuild:
    """The allocator of one dataflow: numbers its channels in the order in which they are opened."""

    def __init__(
        self,
        worker: NumberedWorker,
        number: int,
        registry: StateRegistry | None,
        queue: ActivationQueue,
        timers: Timers,
        activations: SyncActivations,
        send: Callable[[int, Any], None],
        defer: Callable[[Callable[[], None]], bool],
    ) -> None:
        self.worker = worker
        self.index = worker.index
        self.peers = worker.peers
        self.number = number
        self.registry = registry
        self.channels: list[Callable[[Any, Any, int], None]] = []
        self.labels: list[str] = []
        self.activators: list[SyncActivator] = []
        self.installed = False
        self.ended = False
        self.batcher = MessageBatcher(number, send)
        self.send = self.batcher.send
        self.defer = defer
        self._timers = timers
        self._activations = activations
        self.unreferenced = UnreferencedCapabilities(self.new_sync_activator)
        self.wake = partial(queue.add, number)
        """Runs the dataflow in the next step."""

    def open_channel(self, deliver: Callable[[Any, Any, int], None], label: str) -> int:
        self.channels.append(deliver)
        self.labels.append(label)
        return len(self.channels) - 1

    def call_after(self, seconds: float, action: Callable[[], None]) -> None:
        if not self.ended:
            self._timers.after(seconds, action, self.number)

    def end(self) -> None:
        """Do nothing later: the dataflow is complete or dropped, or was never finished."""
        self.ended = True
        self.unreferenced.end()
        if self._timers.entries:
            self._timers.forget(self.number)

    def new_sync_activator(self, action: Callable[[], None]) -> SyncActivator:
        """Return an activator that other threads may use."""
        activator = SyncActivator(action, self._activations)
        self.activators.append(activator)
        return activator


class InstalledDataflow:
    """One dataflow until it is complete or dropped."""

    def __init__(self, number: int, scope: ScopeBuilder[Any], build: DataflowBuild) -> None:
        self.number = number
        self.name = scope.name
        self.scope = scope
        self.root: Subgraph[Any, Any] = scope.subgraph
        self.scopes = scope.scopes
        self.channels = build.channels
        self.labels = build.labels
        self.activators = build.activators
        self.end = build.end
        self.batcher = build.batcher
        self.exchange: ProgressExchange[Pointstamp] | None = scope.exchange
        operators = [child.scope for scope in self.scopes for child in scope.children if isinstance(child.scope, Operator)]
        self._retains = any(operator.info.state.retains for operator in operators)

    def run(self) -> bool:
        """Run every active operator once; return whether it is not complete yet."""
        if self._retains:
            return without_full_collections(self.root.pull_internal_progress, (), (), ())
        return self.root.pull_internal_progress((), (), ())

    def discard(self) -> None:
        """Free the state of the operators, also where a program still has handles of the dataflow."""
        with contextlib.ExitStack() as stack:  # all of them, even if one fails
            for subgraph in self.scopes:
                for child in subgraph.children:
                    if isinstance(child.scope, Operator | CustomScope):
                        stack.callback(child.scope.discard)
