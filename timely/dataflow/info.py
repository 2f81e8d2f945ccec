"""``OperatorInfo``: what an operator's constructor is given, and where it registers its state.

The index and the path are the same on every worker, so that a checkpoint finds the operator again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from timely.dataflow.activator import Activator
from timely.dataflow.operator_state import CheckpointFollower, Load, Log, Rescale, Save, StateDeclarations, StatePart
from timely.dataflow.origin import Origin
from timely.errors import ErrorSubject, RecoveryError, failure

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
