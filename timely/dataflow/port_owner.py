"""What ports and capabilities know of their operator, and capabilities of their port: the types below both.

Python frees an object in the middle of anything, even on the thread of another worker. So a capability that nothing refers to any
more is only noted, which nothing can interrupt, and dropped when an activation is over or between two steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from timely.dataflow.sync_activator import SyncActivator
from timely.errors import CapabilityError, ErrorSubject, TimestampError
from timely.order import PartialOrder
from timely.progress import Antichain, CountSink, PathSummary, TimeDomain
from timely.scopes import TrustedScope

T = TypeVar("T", bound=PartialOrder)


class Closable(ABC):
    """What the end of an activation closes: a session, or a pusher that holds small batches back."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Pass on what there is."""


class PortOwner(TrustedScope[T], Generic[T]):
    """The operator of a port.

    ``call`` numbers its activations. ``iterating`` counts the notificators that are being iterated over; ``notified`` is called
    for each time that one delivers.
    """

    def __init__(
        self, name: str, path: str, domain: TimeDomain[T], touch: Callable[[], None], unreferenced: UnreferencedCapabilities
    ) -> None:
        self.name = name
        self.path = path
        self.domain = domain
        self.touch = touch
        self.unreferenced = unreferenced
        self.running = False
        self.built = False
        self.has_read = False
        self.call = 0
        self.iterating = 0
        self.notified: Callable[[T, Sequence[Any]], None] | None = None
        self.output_ports: list[Any] = []  # of ``OutputPort``, which stands above
        self.sessions: list[Closable] = []
        self.closing: list[Closable] = []

    @abstractmethod
    def activate(self) -> None:
        """Run in this pass, or the next."""

    @abstractmethod
    def place(self) -> ErrorSubject:
        """Return the operator's place, for errors."""


class _Unbuilt(CountSink[Any]):
    __slots__ = ()

    def update_at(self, index: int, time: Any, diff: int) -> None:
        raise CapabilityError("this operator has not been built yet: call build(...) first")


UNBUILT: Final = _Unbuilt()


class Port(Generic[T]):
    """A port of an operator; ``kind`` is ``input`` or ``output``."""

    __slots__ = ("_kind", "_messages", "index", "number", "operator")

    def __init__(self, operator: PortOwner[T], index: int, kind: str) -> None:
        self.operator = operator
        self.index = index
        self.number = -1
        self._kind = kind
        self._messages: CountSink[T] = UNBUILT

    @property
    def label(self) -> str:
        """The port's name in errors."""
        return f"{self._kind} {self.index} of operator {self.operator.name!r} ({self.operator.path})"

    def check(self, time: object) -> None:
        """Raise ``TimestampError`` unless ``time`` is a time of the operator's scope."""
        try:
            self.operator.domain.check(time)
        except TimestampError as error:
            raise TimestampError(f"{self.label}: {error}").caused_by(None)


class CountedInput(Port[T], Generic[T]):
    """An input as its capabilities see it: ``summaries`` lead to the outputs, ``identities`` are those that keep the time."""

    __slots__ = ("identities", "summaries")

    def __init__(self, operator: PortOwner[T], index: int) -> None:
        super().__init__(operator, index, "input")
        self.summaries: Sequence[Antichain[PathSummary[T]]] = ()
        self.identities: frozenset[int] = frozenset()

    def count_in(self, number: int, messages: CountSink[T]) -> None:
        """Count what is read in ``messages``, under ``number``, from now on."""
        self.number = number
        self._messages = messages


class CountedOutput(Port[T], Generic[T]):
    """An output as its capabilities see it, which are counted in the sink ``capabilities`` under ``number``."""

    __slots__ = ("_targets", "capabilities")

    def __init__(self, operator: PortOwner[T], index: int) -> None:
        super().__init__(operator, index, "output")
        self.capabilities: CountSink[T] = UNBUILT
        self._targets: list[int] = []

    def count_in(self, number: int, capabilities: CountSink[T], targets: list[int], messages: CountSink[T]) -> None:
        """Count capabilities under ``number`` and messages under ``targets`` from now on."""
        self.number = number
        self.capabilities = capabilities
        self._targets = targets
        self._messages = messages


class UnreferencedCapabilities:
    """The capabilities of one dataflow that nothing refers to, until they can be dropped.

    ``note`` is for any thread at any moment, ``drop`` for the worker's thread when nothing else goes on. The worker is woken for
    what another thread notes, and for what is noted while the operator does not run.
    """

    __slots__ = ("_activator", "_ended", "noted")

    def __init__(self, new_sync_activator: Callable[[Callable[[], None]], SyncActivator]) -> None:
        self.noted: deque[tuple[CountedOutput[Any], Any]] = deque()  # whose appends and pops are atomic
        self._activator = new_sync_activator(self.drop)
        self._ended = False

    def note(self, port: CountedOutput[Any], time: Any) -> None:
        if self._ended:
            return
        self.noted.append((port, time))  # first of all, so that whoever runs the operator finds it when that is over
        operator = port.operator
        if (operator.built and not operator.running) or not self._activator.here:  # others see its flags too late
            self._activator.activate()

    def drop(self) -> None:
        """Drop what was noted."""
        noted = self.noted
        while noted:
            port, time = noted.popleft()
            if self._ended:
                continue  # noted by another thread meanwhile
            port.capabilities.update_at(port.number, time, -1)
            if not port.operator.running:
                port.operator.touch()

    def end(self) -> None:
        """Stop noting: the dataflow is complete or dropped."""
        self._ended = True
        self.drop()
