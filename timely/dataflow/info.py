"""``OperatorInfo``: what an operator is told of itself when it is constructed, and where it declares its state.

The invariant: the index and the path are the same on every worker, so that what is kept of an operator is found again. The
state is to be declared in the constructor, while the initial capabilities are held; the rest may be asked at any time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from timely.dataflow.operator_state import Load, Log, Rescale, Save, StateDeclarations, StatePart
from timely.dataflow.origin import Origin
from timely.errors import ErrorSubject, RecoveryError, failure

if TYPE_CHECKING:
    from timely.dataflow.operator import Activator


@attrs.frozen
class OperatorInfo:
    """What an operator may know of itself: its index in its scope, its path, the worker it is on, the line of the program that
    built it, and how to be run again.
    """

    name: str
    index: int
    path: str
    activator: Activator
    worker: int
    peers: int
    origin: Origin | None = attrs.field(default=None, eq=False)
    keeping: StateDeclarations = attrs.field(factory=lambda: StateDeclarations(None), repr=False, eq=False)
    _endings: list[Callable[[], object]] = attrs.field(factory=list, repr=False, eq=False)

    def place(self, kind: str = "operator") -> ErrorSubject:
        """Return what errors say of it."""
        return ErrorSubject(kind, self.name, self.path, "" if self.origin is None else str(self.origin))

    def keep(self, save: Save | None, load: Load, *, rescale: Rescale | None = None, logged: bool = False) -> Log:
        """Declare state of the operator, in its constructor, while it has its initial capabilities.

        ``save()`` gives all of it as pieces ``(route, item)``: an item goes to worker ``route % peers``, where ``route`` is
        ``timely.dataflow.route`` of its key; ``None`` is for what is this worker's own. ``load(items)`` takes them back. It is
        called before ``keep`` returns where the dataflow goes on from a checkpoint, so the state must be there already, and
        capabilities for later times are had from the initial one. Items without a route go on another number of workers to
        ``rescale(items of each worker)``; without it, that is refused. With ``logged`` the operator adds each change to the log
        that is returned, and a checkpoint holds the changes alone. May be called more than once; without recovery, to no effect.

        >>> import timely
        >>> def counter(capability, info):
        ...     counts = {}
        ...     info.keep(lambda: [(timely.dataflow.route(word), (word, n)) for word, n in counts.items()], counts.update)
        ...     def logic(input, output):
        ...         for cap, batch in input:
        ...             for word in batch:
        ...                 counts[word] = counts.get(word, 0) + 1
        ...             output.session(cap).give_many(sorted(counts.items()))
        ...     return logic
        >>> timely.example(lambda scope: scope.to_stream(["a", "b", "a"]).unary(timely.Pipeline, "count", counter))
        [(0, [('a', 2), ('b', 1)])]
        """
        keeping = self.keeping
        keeping.declared = True
        part = StatePart(keeping.parts, save, load, rescale, Log(keeping.keeper is not None) if logged else None)
        if keeping.keeper is not None:  # else nobody asks, and it would hold on to the state of a dataflow that is over
            keeping.parts += 1
            keeping.keeper.take(self, part)
        return part.log or Log(kept=False)

    @property
    def begins(self) -> Any:
        """The time that the dataflow goes on from, where a checkpoint has all before it; ``None`` where it begins anew."""
        keeper = self.keeping.keeper
        return None if keeper is None else keeper.begins

    def declare_stateless(self) -> None:
        """Declare, in the constructor, that the operator has no state that outlives an activation."""
        self.keeping.declared = True

    def at_end(self, action: Callable[[], object]) -> None:
        """Have ``action()`` called once when the dataflow is complete or dropped here, or its worker is closed: to let go of
        what the operator has outside, a thread or a connection. The last one that was asked for comes first.

        >>> import timely
        >>> done = []
        >>> def constructor(capability, info):
        ...     info.at_end(lambda: done.append(info.name))
        ...     return lambda output: None
        >>> timely.example(lambda scope: scope.source("borrower", constructor)), done
        ([], ['borrower'])
        """
        self._endings.append(action)

    def end(self) -> None:
        """Call what was asked for with ``at_end``; all of it, even if some raises."""
        with contextlib.ExitStack() as stack:
            for action in self._endings:
                stack.callback(action)
            self._endings.clear()


@contextlib.contextmanager
def blaming(place: ErrorSubject, worker: int) -> Iterator[None]:
    """Have what is raised in the block arrive as an ``OperatorError`` that names ``place``.

    >>> with blaming(Place("scope", "mine", "/df/mine#0", ""), 0):
    ...     raise ValueError("no")
    Traceback (most recent call last):
    timely.errors.OperatorError: scope 'mine' (/df/mine#0) on worker 0 raised ValueError: no
    """
    try:
        yield
    except RecoveryError:
        raise  # it names the operator already
    except Exception as error:
        raise failure(error, place, worker) from error
