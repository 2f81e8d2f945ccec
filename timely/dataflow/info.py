"""``OperatorInfo``: what an operator's constructor is given: its activator, what its worker offers, and where it registers its
state.

The index and the path are the same on every worker, so that a checkpoint finds the operator again. State is a sequence of pairs
``(route, item)``: the item belongs to worker ``route % peers``. ``load`` gets the items of the last ``save`` and of every
``append`` since, in order for each key. Source: Naiad section 3.4.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, SupportsFloat, TypeAlias

import attrs

from timely.dataflow.origin import Origin
from timely.dataflow.port_owner import UnreferencedCapabilities
from timely.dataflow.sync_activator import SyncActivator
from timely.errors import ConfigurationError, ErrorSubject, RecoveryError, failure
from timely.scopes import Subgraph

Piece: TypeAlias = tuple[int | None, Any]
"""``(route, item)``: the item belongs to worker ``route % peers``; with ``None``, to the worker that saved it."""

Save: TypeAlias = Callable[[], Iterable[Piece]]
"""Returns all of the state. It is read to its end before the operator runs again."""

Load: TypeAlias = Callable[[Iterable[Any]], object]
"""Restores the items, in the constructor of a new operator. It must iterate to the end; they are read from a file meanwhile."""

Rescale: TypeAlias = Callable[[Sequence[Iterable[Any]]], object]
"""Restores, on another number of workers, the items without a route, by the worker that saved them.

It is called on every worker, after ``load`` has restored the items with a route.
"""


@attrs.define(eq=False)
class Log:
    """The changes of an operator's state since the last checkpoint."""

    kept: bool
    entries: list[Piece] = attrs.field(factory=list)

    def append(self, route: int | None, item: Any) -> None:
        """Add a change: an item that brings the state up to date when it is loaded after those before it."""
        if self.kept:
            self.entries.append((route, item))

    def drain(self) -> list[Piece]:
        """Return the changes since the last call."""
        entries, self.entries = self.entries, []
        return entries


class CheckpointFollower(Protocol):
    """What an operator whose state is a position outside, a source or a sink, does at checkpoints."""

    def stop(self) -> Any | None:
        """Send nothing until ``resume``; return the first time at which a checkpoint can be taken, ``None`` for any."""

    def advance(self, time: Any) -> None:
        """Advance to the time of the checkpoint, which is not before what ``stop`` returned."""

    def resume(self) -> None:
        """Go on: the checkpoint was taken, or failed."""

    def committed(self, oldest: Any) -> None:
        """Publish what the checkpoint holds; ``oldest`` is the time of the oldest that stays."""

    def close(self) -> None:
        """End: no checkpoint follows."""


@attrs.frozen(eq=False)
class StatePart:
    """One declaration of state: the ``number``-th of its operator.

    Without ``log`` the whole of it is saved in every checkpoint. With it, a checkpoint takes what has been added, and ``save``,
    if there is one, is called now and then, to begin anew when the log has grown. With ``at_rest`` it is saved only where
    nothing before the boundary is in flight.
    """

    number: int
    save: Save | None
    load: Load
    rescale: Rescale | None
    log: Log | None
    at_rest: bool = False
    follower: CheckpointFollower | None = None


@attrs.frozen
class RelationStart:
    """How a named relation begins: anew, or with its state ``restored``.

    Where it ``migrates``, its rows are kept for readers to come. ``time`` is that of the checkpoint. ``before`` is its definition
    there, ``None`` where it was not there, and with ``dropped`` the program gives up its rows.
    """

    restored: bool = False
    migrates: bool = False
    time: Any = None
    before: str | None = None
    dropped: bool = False

    @property
    def rebuilt(self) -> bool:
        """Whether it had rows, and begins anew."""
        return self.before is not None and not self.restored


class StateRegistry(Protocol):
    """Keeps the state of one dataflow's operators."""

    def begins(self, relation: str) -> Any:
        """The time that a relation goes on from, all before it being complete; ``None`` where it begins anew."""

    def open(self, name: str, kind: str, definition: str, reads: tuple[str, ...]) -> RelationStart:
        """Note a named relation, before its operators are made; return how it begins."""

    def register(self, info: OperatorInfo, part: StatePart) -> None:
        """Register a part of an operator's state. Where the run resumes, the part has loaded its items when this returns."""

    def load_before(self, info: OperatorInfo, operator: str, part: StatePart) -> None:
        """Load a part that the checkpoint has of an operator of the relation of ``info``, which begins anew."""

    def built(self, scope: Any) -> None:
        """Note that the dataflow is built, before any of it runs; ``scope`` is its ``ScopeBuilder``."""


@attrs.define(eq=False)
class StateDeclarations:
    """How many ``parts`` of state one operator has registered; only the registry refers to them, and so to the state.

    It ``retains`` most of the objects that it makes: Python's full collections are to wait while its dataflow runs. ``function``
    is what it makes of records, for whoever asks why one is there.
    """

    registry: StateRegistry | None
    declared: bool = False
    parts: int = 0
    collection: bool = False
    retains: bool = False
    function: Any = None


class Allocator(Protocol):
    """A worker as one dataflow sees it: its place among its peers, and channels between them."""

    @property
    def index(self) -> int:
        """This worker's number, from 0."""

    @property
    def peers(self) -> int:
        """How many workers there are."""

    @property
    def registry(self) -> StateRegistry | None:
        """Where operators register their state; ``None`` without recovery."""

    @property
    def unreferenced(self) -> UnreferencedCapabilities:
        """Where capabilities that nothing refers to are noted."""

    def open_channel(self, deliver: Callable[[Any, Any, int], None], label: str) -> int:
        """Open the next channel of the dataflow being built, and return its number.

        ``deliver(time, batch, records)`` gets what peers send on it; ``label`` is the receiver's name in errors.
        """

    def send(self, peer: int, channel: int, time: Any, batch: Any) -> None:
        """Send a container on a channel to a peer."""

    def defer(self, action: Callable[[], None]) -> bool:
        """Call ``action()``, which runs an operator without inputs, when peers take more; return whether they do not now."""

    def call_after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call ``action()`` on the worker's thread after ``seconds``, unless the dataflow is complete by then."""

    def new_sync_activator(self, action: Callable[[], None]) -> SyncActivator:
        """Return an activator for any thread that has ``action()`` called on the worker's."""


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


_TRIES: Final = 3
"""How often a function of ``describe`` is called, where the worker changes what it reads."""


@attrs.frozen
class OperatorInfo:
    """What an operator may know of itself; ``origin`` is the line of the program that built it.

    ``identity`` is its name in its named ``relation`` (``scope.named``), which changes of other relations leave as it is.
    """

    name: str
    index: int
    path: str
    activator: Activator
    worker: int
    peers: int
    origin: Origin | None = attrs.field(default=None, eq=False)
    identity: str = ""
    relation: str = ""
    state: StateDeclarations = attrs.field(factory=lambda: StateDeclarations(None), repr=False, eq=False)
    _endings: list[Callable[[], object]] = attrs.field(factory=list, repr=False, eq=False)
    _texts: list[tuple[Callable[[], str], bool]] = attrs.field(factory=list, repr=False, eq=False)

    def place(self, kind: str = "operator") -> ErrorSubject:
        """Return the operator's place, for errors."""
        return ErrorSubject(kind, self.name, self.path, "" if self.origin is None else str(self.origin))

    def register_state(
        self,
        save: Save | None,
        load: Load,
        *,
        rescale: Rescale | None = None,
        logged: bool = False,
        at_rest: bool = False,
        follower: CheckpointFollower | None = None,
    ) -> Log:
        """Register state, in the constructor, while the operator holds its initial capabilities.

        ``save()`` returns all of it as pairs ``(route, item)``. An item goes to worker ``route % peers``, where ``route`` is
        ``timely.dataflow.route`` of its key; ``None`` keeps it on this worker. In a run that goes on from a checkpoint,
        ``load(items)`` is called before this returns. On another number of workers, items without a route go to
        ``rescale(items of each worker)``, and without ``rescale`` that is an error. With ``logged`` the operator appends each
        change to the returned log, and a checkpoint holds the changes alone. With ``at_rest`` the state is whole only where no
        message before the checkpoint's time is in flight; checkpoints in the middle of a loop are refused then. A
        ``follower`` is called around each checkpoint. Without recovery nothing happens.

        >>> import timely
        >>> def counter(capability, info):
        ...     counts = {}
        ...     info.register_state(lambda: [(timely.dataflow.route(key), (key, n)) for key, n in counts.items()], counts.update)
        ...     return lambda output: None
        >>> timely.example(lambda scope: scope.source("count", counter))
        []
        """
        state = self.state
        state.declared = True
        log = Log(state.registry is not None) if logged else None
        part = StatePart(state.parts, save, load, rescale, log, at_rest, follower)
        if state.registry is not None:  # else nobody asks, and the part would keep the state of a finished dataflow alive
            state.parts += 1
            state.registry.register(self, part)
        return part.log or Log(kept=False)

    def declare_stateless(self) -> None:
        """Declare, in the constructor, that the operator has no state that outlives an activation."""
        self.state.declared = True

    def declare_collection(self) -> None:
        """Declare, in the constructor, that the sums of what is sent up to a time depend on the sums of what has come alone.

        So the operator may begin anew with the sums, where a changed program resumes.
        """
        self.state.collection = True

    @property
    def begins(self) -> Any:
        """The time that the dataflow goes on from, where a checkpoint has all before it; ``None`` where it begins anew."""
        registry = self.state.registry
        return None if registry is None else registry.begins(self.relation)

    def at_end(self, action: Callable[[], object]) -> None:
        """Call ``action()`` once when the dataflow is complete or dropped, or its worker is closed; the last one first.

        For what the operator has outside, such as a thread or a connection.
        """
        self._endings.append(action)

    def describe(self, text: Callable[[], str], *, records: bool = False) -> None:
        """Show ``text()`` at the operator in pictures, on the live page and in ``worker.explain``, while its dataflow runs.

        It is called when somebody looks, also on another thread, so it must only read. An empty text is not shown. Texts with
        ``records`` of the program are shown by ``worker.explain`` alone.

        >>> import timely
        >>> def constructor(capability, info):
        ...     words = {"to", "be"}
        ...     info.describe(lambda: f"{len(words)} words")
        ...     return lambda input, output: None
        >>> with timely.Worker().dataflow(name="df") as scope:
        ...     _ = scope.empty().unary(timely.Pipeline, "count", constructor)
        >>> "count<br>2 words" in scope.picture().mermaid()
        True
        """
        self._texts.append((text, records))

    def described(self, *, records: bool) -> list[str]:
        """Return the texts with records of the program, or those without; never raises."""
        return [line for text, has_records in list(self._texts) if has_records is records and (line := _called(text))]

    def end(self) -> None:
        """Call every action of ``at_end``, even if some raise; describe nothing any more."""
        self._texts.clear()
        self.state.function = None
        with contextlib.ExitStack() as stack:
            for action in self._endings:
                stack.callback(action)
            self._endings.clear()


def _called(text: Callable[[], str]) -> str:
    trouble: Exception | None = None
    for _ in range(_TRIES):
        try:
            return str(text())
        except Exception as error:  # most likely it changed while it was read
            trouble = error
    return f"its description raised {type(trouble).__name__}"  # no more, for the error may have records


@contextlib.contextmanager
def blaming(place: ErrorSubject, worker: int) -> Iterator[None]:
    """Raise errors of the block as an ``OperatorError`` that names ``place``."""
    try:
        yield
    except RecoveryError:
        raise  # it names the operator already
    except Exception as error:
        raise failure(error, place, worker) from error
