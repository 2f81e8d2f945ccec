"""Every error that the library raises on purpose, and the one kind of warning.

One tree with one root, so that ``except timely.TimelyError`` catches all of them and nothing else. A message says which
operator (its name and its path in the nesting), what was expected, what came, and what to do. This module imports nothing
of the package, so that every layer may import it.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

_LINE: Final = 200
"""Characters at most that a message has of what was given."""

_PAGE: Final = 4000
"""Characters at most that a message has of another error's."""


def told(error: BaseException) -> str:
    """Return the type of an error and what it says, for a message; also of one that raises when it is asked.

    Of what is long the beginning and the end: a ``KeyError`` says all of the key, which may be all the data that somebody has.

    >>> told(ValueError("not this")), len(told(KeyError((0,) * 100_000)))
    ('ValueError: not this', 4010)
    """
    try:
        text = str(error)
    except Exception as trouble:
        return f"{type(error).__name__}, which raises {type(trouble).__name__} when it is to say what it is"
    if len(text) > _PAGE:
        text = f"{text[: _PAGE - 505]} ... {text[-500:]}"
    return f"{type(error).__name__}: {text}"


def shown(given: object) -> str:
    """Return what was given, for a message, and of what is long the beginning: it may be all the data that somebody has.

    >>> shown([1, 2]), len(shown([0] * 1000))
    ('[1, 2]', 200)
    """
    try:
        text = repr(given)
    except Exception as trouble:
        return f"a {type(given).__name__}, which raises {type(trouble).__name__} when it is to say what it is"
    return text if len(text) <= _LINE else f"{text[: _LINE - 4]} ..."


def out_of_files(error: object) -> bool:
    """Return whether an error says that no more files can be opened: by this process, or by the whole system.

    >>> out_of_files(OSError(errno.EMFILE, "Too many open files")), out_of_files(OSError(errno.ENOSPC, "No space left"))
    (True, False)
    """
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def what_failed(error: Exception) -> str:
    """Return what the system says of a file that could not be used, and what to do where too many are open.

    >>> what_failed(OSError(errno.ENOSPC, "No space left on device"))
    '[Errno 28] No space left on device'
    """
    advice = "; raise how many a process may have open (ulimit -n), or take fewer workers" if out_of_files(error) else ""
    return f"{error}{advice}"


class Place(NamedTuple):
    """What an error is about: the kind of thing, its name and path, and the line of the program that built it, or nothing."""

    kind: str
    name: str
    path: str
    built: str


class TimelyError(Exception):
    """The root of every error that this library raises on purpose.

    ``blamed`` is the place that it is about, where that is not the operator in which it was raised.
    """

    blamed: Place | None = None

    def caused_by(self, cause: BaseException | None) -> Self:
        """Return this error, with its cause: ``raise error.caused_by(cause)`` does what ``raise error from cause`` does.

        It is for the modules that may be compiled: the compiler leaves a ``from`` out (docs/decisions/compiled-engine.md).

        >>> first = KeyError("a")
        >>> error = TimelyError("second").caused_by(first)
        >>> error.__cause__ is first, error.__suppress_context__
        (True, True)
        """
        self.__cause__ = cause
        return self


class TimelyWarning(UserWarning):
    """What a program does is allowed, and hardly what was meant; it names the line of the program, and is shown once for each."""


class ConfigurationError(TimelyError, ValueError):
    """A run was asked for that cannot be had: no workers, an unknown engine, a transport that is missing."""


class TimestampError(TimelyError, ValueError):
    """A timestamp or path summary is not valid for its type: before the minimum, or a summary that goes backwards."""


class GraphError(TimelyError, ValueError):
    """A dataflow graph is not well formed: an unknown node or port, or an input with two sources."""


class CycleError(GraphError):
    """A cycle in the graph does not strictly advance time, so that progress on it could never be decided.

    ``nodes`` names the nodes of one such cycle, in order.
    """

    def __init__(self, message: str, nodes: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.nodes: tuple[object, ...] = tuple(nodes)

    def __reduce__(self) -> tuple[type[CycleError], tuple[str, tuple[object, ...]]]:
        return type(self), (str(self), self.nodes)


class UnconnectedLoopError(GraphError):
    """A ``feedback`` handle was never connected, so that its stream could never carry anything."""


class ScopeError(GraphError):
    """A stream was used in a scope that it does not belong to, or a scope was used after it was closed."""


class GraphMismatchError(TimelyError):
    """Two workers built different dataflows under the same number, so that their messages would not fit."""


class CapabilityError(TimelyError, ValueError):
    """A send, delay or downgrade that no held capability allows."""


class ProgressError(TimelyError):
    """A statement of progress that breaks the protocol: unsupported, negative where it cannot be, or out of order."""


class InputClosedError(TimelyError, ValueError):
    """Data was sent to an input, or its time was moved, after it had been closed."""


class TimeRegressionError(TimelyError, ValueError):
    """An input was asked to go back to a time it has already left."""


class RoutingError(TimelyError, ValueError):
    """A record was routed to a place that does not exist, or has a key that cannot be routed."""


class ContainerError(TimelyError, TypeError):
    """What was sent is not a container: it has no length, or its records cannot be read."""


class SpillError(TimelyError, RuntimeError):
    """What waits at an input cannot be moved to disk, or read back: the disk is full, or a record cannot be pickled."""


class CaptureError(TimelyError, ValueError):
    """A recorded stream cannot be written, or cannot be replayed: it breaks off, is damaged, or breaks the rules of its events.

    ``events`` is how many of its events are good, ``frontier`` the times that may still come after these, and ``position`` where
    in its file the good part ends, in bytes.
    """

    def __init__(self, message: str, events: int = 0, frontier: Sequence[object] = (), position: int | None = None) -> None:
        super().__init__(message)
        self.events = events
        self.frontier: tuple[object, ...] = tuple(frontier)
        self.position = position

    def __reduce__(self) -> tuple[type[CaptureError], tuple[str, int, tuple[object, ...], int | None]]:
        return type(self), (str(self), self.events, self.frontier, self.position)


class UnsendableError(RoutingError):
    """A message for a worker in another process cannot be pickled; ``message`` is the one. Workers say what it was for."""

    def __init__(self, reason: str, message: object = None) -> None:
        super().__init__(reason)
        self.message = message


class OperatorError(TimelyError, RuntimeError):
    """An operator's logic raised. Names the operator, its path and its worker; the cause is what was raised."""

    def __init__(self, message: str, name: str = "", path: str = "", worker: int = -1) -> None:
        super().__init__(message)
        self.name = name
        self.path = path
        self.worker = worker

    def __reduce__(self) -> tuple[type[OperatorError], tuple[str, str, str, int]]:
        return type(self), (str(self), self.name, self.path, self.worker)


def failure(error: Exception, place: Place, worker: int, advice: str = "") -> OperatorError:
    """Return the error for what was raised at ``place``: it names that, or what ``error`` blames instead, and is caused by it.

    >>> str(failure(ValueError("no"), Place("operator", "map", "/df/map#1", "program.py:3 in build"), 0))
    "operator 'map' (/df/map#1) on worker 0 raised ValueError: no; 'map' was built at program.py:3 in build"
    """
    blamed = place
    during = ""
    if isinstance(error, TimelyError) and error.blamed is not None and error.blamed != place:
        blamed = error.blamed
        during = f", for what {place.kind} {place.name!r} ({place.path}) sent,"
    kind, name, path, built = blamed
    text = f"{kind} {name!r} ({path}) on worker {worker}{during} raised {told(error)}{advice}"
    return OperatorError(text + (f"; {name!r} was built at {built}" if built else ""), name, path, worker).caused_by(error)


class WorkerError(TimelyError, RuntimeError):
    """A worker's own program raised, or its process ended without a result."""


class PeerLostError(TimelyError, ConnectionError):
    """Another worker of the run has failed or gone away, so that this one cannot go on."""


class AuthenticationError(TimelyError, ConnectionError):
    """Somebody who does not know the run's secret tried to take part in it."""


class PlaceError(ConfigurationError, TypeError):
    """What was asked about is no place of a dataflow: no stream, no probe, no input of an operator, no scope."""


class StalledError(TimelyError, RuntimeError):
    """A dataflow was to be run to its end, but nothing can move it any more: some input or capability is still held."""


class RecoveryError(TimelyError, RuntimeError):
    """A run cannot be checkpointed, or cannot go on from a checkpoint."""


class StateError(RecoveryError):
    """An operator's state cannot be kept or taken back: it was not declared, cannot be pickled, or cannot be dealt anew."""


class CheckpointError(RecoveryError):
    """A checkpoint cannot be written or read: the disk is full, a file is damaged or missing, or a newer run has taken over."""


class ChangedDataflowError(RecoveryError):
    """A checkpoint is of another dataflow than the one that is to go on from it."""


class SchemaError(TimelyError, ValueError):
    """Data does not have the columns or types that were asked for."""


class SparkError(TimelyError, RuntimeError):
    """The Spark side of a run cannot be set up: too few slots, no usable Java, a failed stage."""


class OutputError(ConfigurationError, KeyError):
    """A result was asked for an output that it does not have."""

    __str__ = Exception.__str__  # a KeyError's is in quotes


class DeliveryError(TimelyError, RuntimeError):
    """What takes the epochs of a stream raised; the cause is what it raised, ``epoch`` the one that it was handed."""

    def __init__(self, message: str, epoch: int = -1) -> None:
        super().__init__(message)
        self.epoch = epoch

    def __reduce__(self) -> tuple[type[DeliveryError], tuple[str, int]]:
        return type(self), (str(self), self.epoch)


class InvariantViolation(TimelyError, AssertionError):
    """What must hold of every run does not: names the ``invariant`` by its id, and says what was found instead.

    Raised by what checks (:mod:`timely.testing`), so it is an ``AssertionError`` as well: to a test it is a failure.
    ``decisions`` are those that led there, where a simulation was run.
    """

    def __init__(self, invariant: str, message: str, decisions: Sequence[object] = ()) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.message = message
        self.decisions: tuple[object, ...] = tuple(decisions)

    def __reduce__(self) -> tuple[type[InvariantViolation], tuple[str, str, tuple[object, ...]]]:
        return type(self), (self.invariant, self.message, self.decisions)


class LawViolation(TimelyError, AssertionError):
    """A type of times, summaries or a refinement breaks a law that progress tracking rests on.

    ``law`` is the law's name, ``counterexample`` the smallest values found that break it, by the letters of the message.
    """

    def __init__(self, message: str, law: str = "", counterexample: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.law = law
        self.counterexample: dict[str, object] = dict(counterexample or {})

    def __reduce__(self) -> tuple[type[LawViolation], tuple[str, str, dict[str, object]]]:
        return type(self), (str(self), self.law, self.counterexample)
