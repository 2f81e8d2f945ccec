"""What carries messages from an output to the inputs that are connected to it.

An output has a list of pushers, one for each edge. They only move data: the output counts what it sends, on every edge at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from timely.dataflow.containers.concatenation import BYTES, ENOUGH, SMALL, compatible, concatenated, narrow
from timely.dataflow.containers.keys import Parts
from timely.dataflow.info import Allocator
from timely.dataflow.port_owner import Closable
from timely.dataflow.spill import Queue
from timely.errors import ErrorSubject, RoutingError, TimelyError, error_text
from timely.order import PartialOrder
from timely.scopes import Subgraph

T = TypeVar("T", bound=PartialOrder)
TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)


class Pusher(Closable, Generic[T]):
    """One edge out of an output."""

    __slots__ = ()

    @abstractmethod
    def push(self, time: T, batch: Any, records: int) -> None:
        """Send a container with this many records (never none) at ``time``."""

    def close(self) -> None: ...


class QueuePusher(Pusher[T], Generic[T]):
    """Puts messages into the queue of an input on this worker, and has its operator run."""

    __slots__ = ("_child", "_put", "_scope")

    def __init__(self, queue: Queue[T], scope: Subgraph[Any, T], child: int) -> None:
        self._put = queue.append
        self._scope = scope
        self._child = child

    def push(self, time: T, batch: Any, records: int) -> None:
        self._scope.activate(self._child)  # first, for it is in the queue even if that cannot spill
        self._put((time, batch, records))


class ExchangePusher(Pusher[T], Generic[T]):
    """Partitions each message by ``parts(time, batch, workers)``, and sends the parts.

    One worker asks for the parts too, so that a key that fails is noticed there. With several workers, small columnar containers
    of one time are held until the sender's activation ends, if it has a list ``closing``, and are partitioned together. Errors of
    the key name the reader's ``place()``, since the key was given there.
    """

    __slots__ = (
        "_allocator",
        "_bytes",
        "_channel",
        "_closing",
        "_held",
        "_label",
        "_local",
        "_narrow",
        "_parts",
        "_place",
        "_records",
        "_time",
    )

    def __init__(
        self,
        parts: Callable[[T, Any, int], Parts],
        local: QueuePusher[T],
        allocator: Allocator,
        label: str,
        place: Callable[[], ErrorSubject],
        closing: list[Closable] | None,
    ) -> None:
        self._parts = parts
        self._local = local
        self._allocator = allocator
        self._label = label
        self._place = place
        self._channel = allocator.open_channel(local.push, label) if allocator.peers > 1 else -1
        self._closing = closing if allocator.peers > 1 else None
        self._held: list[Any] = []
        self._records = 0
        self._bytes = 0
        self._narrow = False
        self._time: T | None = None

    def push(self, time: T, batch: Any, records: int) -> None:
        closing = self._closing
        if closing is None:
            self._partition(time, batch)
            return
        held = self._held
        if held:
            if records < SMALL and self._records + records <= ENOUGH and time == self._time and self._joins(batch):
                held.append(batch)
                self._records += records
                return
            self.close()
        if records < SMALL and compatible(batch, batch):
            self._held = [batch]
            self._time, self._records = time, records
            closing.append(self)
        else:
            self._partition(time, batch)

    def _joins(self, batch: Any) -> bool:
        held = self._held
        if not compatible(held[0], batch):
            return False
        if len(held) == 1:  # of a container that stays alone nothing is asked
            self._narrow = narrow(held[0])
            self._bytes = 0 if self._narrow else held[0].nbytes
        if not self._narrow:
            self._bytes += batch.nbytes
        return self._bytes <= BYTES

    def close(self) -> None:
        """Partition what is held."""
        held, self._held = self._held, []
        for batch in concatenated(held):
            self._partition(cast("T", self._time), batch)

    def _partition(self, time: T, batch: Any) -> None:
        allocator = self._allocator
        try:
            parts = self._parts(time, batch, allocator.peers)
        except RoutingError as error:
            raise self._failure(str(error), error)
        except TimelyError as error:
            error.blamed = self._place()
            raise
        except Exception as error:
            raise self._failure(f"the key of a record raised {error_text(error)}", error)
        for peer, part in parts:
            if peer == allocator.index:
                self._local.push(time, part, len(part))
            else:
                allocator.send(peer, self._channel, time, part)

    def _failure(self, reason: str, cause: Exception) -> RoutingError:
        error = RoutingError(f"exchange into {self._label}: {reason}").caused_by(cause)
        error.blamed = self._place()
        return error


class EnterPusher(Pusher[TO], Generic[TO, TI]):
    """Carries messages into a nested scope: translates the time, and has the scope account for them."""

    __slots__ = ("_port", "_scope", "_tee", "_to_inner")

    def __init__(self, scope: Subgraph[TO, TI], port: int, tee: list[Pusher[TI]]) -> None:
        self._scope = scope
        self._port = port
        self._tee = tee
        self._to_inner = scope.refinement.to_inner

    def push(self, time: TO, batch: Any, records: int) -> None:
        inner = self._to_inner(time)
        self._scope.enter(self._port, inner, records)
        for pusher in self._tee:
            pusher.push(inner, batch, records)


class LeavePusher(Pusher[TI], Generic[TO, TI]):
    """Carries messages out of a nested scope; they are counted where they were produced."""

    __slots__ = ("_tee", "_to_outer")

    def __init__(self, scope: Subgraph[TO, TI], tee: list[Pusher[TO]]) -> None:
        self._tee = tee
        self._to_outer = scope.refinement.to_outer

    def push(self, time: TI, batch: Any, records: int) -> None:
        outer = self._to_outer(time)
        for pusher in self._tee:
            pusher.push(outer, batch, records)
