"""The errors that the library raises, and its one kind of warning.

All derive from ``TimelyError``. A message names the operator and its path, says what was expected and what came, and what to do.
This module imports nothing of the package, so that every layer may import it.
"""

from __future__ import annotations

import difflib
import errno
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

_REPR_LIMIT: Final = 200
_TEXT_LIMIT: Final = 4000
_CONTROLS: Final = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Characters that change what a terminal shows elsewhere, or in which order; not tabs and ends of lines."""


def printable(text: str) -> str:
    """Return a text with its control characters escaped, since data could clear the screen, or type for the user.

    >>> printable("naïve\\n"), printable("\\x1b[2J")
    ('naïve\\n', '\\\\x1b[2J')
    """
    return text if text.isprintable() else text.translate(_CONTROLS)


def error_text(error: BaseException) -> str:
    """Return the type and message of an error, shortened in the middle; also of one whose ``__str__`` raises.

    >>> error_text(ValueError("not this")), len(error_text(KeyError((0,) * 100_000)))
    ('ValueError: not this', 4010)
    """
    try:
        text = str(error)
    except Exception as trouble:
        return f"{type(error).__name__}, which raises {type(trouble).__name__} when printed"
    if len(text) > _TEXT_LIMIT:  # a KeyError's message is the whole key
        text = f"{text[: _TEXT_LIMIT - 505]} ... {text[-500:]}"
    return f"{type(error).__name__}: {text}"


def brief(value: object) -> str:
    """Return the ``repr`` of a value, cut to 200 characters; also of one whose ``__repr__`` raises.

    >>> brief([1, 2]), len(brief([0] * 1000))
    ('[1, 2]', 200)
    """
    try:
        text = repr(value)
    except Exception as trouble:
        return f"a {type(value).__name__}, which raises {type(trouble).__name__} when printed"
    return text if len(text) <= _REPR_LIMIT else f"{text[: _REPR_LIMIT - 4]} ..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that proposes the known name nearest to ``name``; nothing where none is near.

    >>> did_you_mean("sale", ["sales", "shops"]), did_you_mean("orders", ["shops"])
    ('; did you mean sales?', '')
    """
    near = difflib.get_close_matches(name, [each for each in known if each != name], 1, 0.65)
    return f"; did you mean {near[0]}?" if near else ""


def listed_names(names: Iterable[str]) -> str:
    """Return names for a message, the first twenty of many.

    >>> listed_names(["a", "b"]), listed_names([]), listed_names(map(str, range(22)))[-12:]
    ('a, b', 'none', '19, 2 others')
    """
    shown = list(names)
    return ", ".join(shown[:20] + [f"{len(shown) - 20} others"] * (len(shown) > 20)) or "none"


def require_package(package: str, subject: str, extra: str) -> None:
    """Raise a ``ConfigurationError`` that says what to install, where ``package`` is not installed and ``subject`` needs it.

    >>> require_package("no_such_package", "group_by", "arrow")
    Traceback (most recent call last):
    timely.errors.ConfigurationError: group_by needs the package no_such_package: pip install "timely-dataflow[arrow]"
    """
    if importlib.util.find_spec(package) is None:
        raise ConfigurationError(f'{subject} needs the package {package}: pip install "timely-dataflow[{extra}]"')


def out_of_files(error: object) -> bool:
    """Return whether an error says that the process or the system has too many open files.

    >>> out_of_files(OSError(errno.EMFILE, "Too many open files")), out_of_files(OSError(errno.ENOSPC, "No space left"))
    (True, False)
    """
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def file_error_text(error: Exception) -> str:
    """Return the message of a file error, with advice where too many files are open.

    >>> file_error_text(OSError(errno.ENOSPC, "No space left on device"))
    '[Errno 28] No space left on device'
    """
    advice = "; raise how many a process may have open (ulimit -n), or take fewer workers" if out_of_files(error) else ""
    return f"{error}{advice}"


class ErrorSubject(NamedTuple):
    """What an error is about: its kind, name and path, and the user's line that built it, or ``""``."""

    kind: str
    name: str
    path: str
    built: str


class TimelyError(Exception):
    """The root of the library's errors; ``blamed`` is set where it is about another operator than the one that raised it."""

    blamed: ErrorSubject | None = None

    def __str__(self) -> str:
        return printable(Exception.__str__(self))  # a KeyError's own is in quotes

    def caused_by(self, cause: BaseException | None) -> Self:
        """Return this error with its cause: ``raise ... from cause`` for modules whose compiler drops the ``from``.

        See docs/decisions/engine.md.

        >>> first = KeyError("a")
        >>> error = TimelyError("second").caused_by(first)
        >>> error.__cause__ is first, error.__suppress_context__
        (True, True)
        """
        self.__cause__ = cause
        return self


class TimelyWarning(UserWarning):
    """An allowed use that is probably a mistake; names the user's line, once for each."""


class ConfigurationError(TimelyError, ValueError):
    """An argument or setting that is not valid: no workers, an unknown engine, a missing package."""


class IdempotencyError(ConfigurationError):
    """A request has the idempotency key of another one that has happened."""


class TimestampError(TimelyError, ValueError):
    """A timestamp or summary that is not valid here: of another type, before the minimum, or before the input's time."""


class GraphError(TimelyError, ValueError):
    """A dataflow graph that is not valid.

    A bad port, an unconnected loop, a stream of another scope, or workers that built different graphs.
    """


class CycleError(GraphError):
    """A cycle on which time does not strictly advance; ``nodes`` names its nodes in order."""

    def __init__(self, message: str, nodes: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.nodes: tuple[object, ...] = tuple(nodes)

    def __reduce__(self) -> tuple[type[CycleError], tuple[str, tuple[object, ...]]]:
        return type(self), (str(self), self.nodes)


class CapabilityError(TimelyError, ValueError):
    """A send, delay or downgrade that no held capability allows, or the use of a closed input."""


class ProgressError(TimelyError):
    """A progress update that breaks the protocol: not supported by a capability, negative, or out of order."""


class RoutingError(TimelyError, ValueError):
    """A record whose key cannot be routed, or whose route does not exist."""


class ContainerError(TimelyError, TypeError):
    """A sent batch that is not a container: it has no length, or its records cannot be read."""


class SpillError(TimelyError, RuntimeError):
    """Queued records cannot be spilled to disk or read back: the disk is full, or a record cannot be pickled."""


class CaptureError(TimelyError, ValueError):
    """A recorded stream cannot be written or replayed: it is truncated, damaged, or breaks the event protocol.

    ``events`` counts its valid events, ``frontier`` has the times that may follow, ``position`` is the byte offset behind them.
    """

    def __init__(self, message: str, events: int = 0, frontier: Sequence[Any] = (), position: int | None = None) -> None:
        super().__init__(message)
        self.events = events
        self.frontier: tuple[Any, ...] = tuple(frontier)
        self.position = position

    def __reduce__(self) -> tuple[type[CaptureError], tuple[str, int, tuple[object, ...], int | None]]:
        return type(self), (str(self), self.events, self.frontier, self.position)


class UnsendableError(RoutingError):
    """A ``message`` for another process that cannot be pickled."""

    def __init__(self, reason: str, message: object = None) -> None:
        super().__init__(reason)
        self.message = message


class OperatorError(TimelyError, RuntimeError):
    """An operator's logic raised; ``name``, ``path`` and ``worker`` say where, ``__cause__`` what."""

    def __init__(self, message: str, name: str = "", path: str = "", worker: int = -1) -> None:
        super().__init__(message)
        self.name = name
        self.path = path
        self.worker = worker

    def __reduce__(self) -> tuple[type[OperatorError], tuple[str, str, str, int]]:
        return type(self), (str(self), self.name, self.path, self.worker)

    def placed(self, message: str, name: str, path: str, worker: int) -> OperatorError:
        """Return the error for an operator that raised this one."""
        return OperatorError(message, name, path, worker)


class OutOfMemoryError(OperatorError, MemoryError):
    """An operator needs more memory at once than it may take; the message has the bytes, the rows, and what to set."""

    def placed(self, message: str, name: str, path: str, worker: int) -> OutOfMemoryError:
        return OutOfMemoryError(message, name, path, worker)


class CollectionMismatch(OperatorError, AssertionError):
    """Two collections that a program asserts to be equal differ; ``time``, ``record`` and ``diff`` say where, and by how much."""

    def __init__(self, message: str, time: object = None, record: object = None, diff: object = None) -> None:
        super().__init__(message)
        self.time = time
        self.record = record
        self.diff = diff

    def __reduce__(self) -> Any:
        return _mismatch, (str(self), self.time, self.record, self.diff, self.name, self.path, self.worker)

    def placed(self, message: str, name: str, path: str, worker: int) -> CollectionMismatch:
        return _mismatch(message, self.time, self.record, self.diff, name, path, worker)


def _mismatch(message: str, time: object, record: object, diff: object, name: str, path: str, worker: int) -> CollectionMismatch:
    error = CollectionMismatch(message, time, record, diff)
    error.name, error.path, error.worker = name, path, worker
    return error


OUT_OF_MEMORY: Final = (
    "Give memory= (of timely.execute or timely.spark.run), so that what is larger goes to disk; more of it, on Spark also"
    " spark.executor.pyspark.memory; or more workers, each with its own process"
)
"""What to do about too little memory."""


def failure(error: Exception, subject: ErrorSubject, worker: int, advice: str = "") -> OperatorError:
    """Return the ``OperatorError`` for an error raised in ``subject``, or about what ``error`` blames instead.

    >>> str(failure(ValueError("no"), ErrorSubject("operator", "map", "/df/map#1", "program.py:3 in build"), 0))
    "operator 'map' (/df/map#1) on worker 0 raised ValueError: no; 'map' was built at program.py:3 in build"
    """
    blamed = subject
    during = ""
    if isinstance(error, TimelyError) and error.blamed is not None and error.blamed != subject:
        blamed = error.blamed
        during = f", for what {subject.kind} {subject.name!r} ({subject.path}) sent,"
    kind, name, path, built = blamed
    text = f"{kind} {name!r} ({path}) on worker {worker}{during} raised {error_text(error)}{advice}"
    text += f"; {name!r} was built at {built}" if built else ""
    placed = error.placed if isinstance(error, OperatorError) else OperatorError
    if isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
        placed, text = OutOfMemoryError, f"{text}. {OUT_OF_MEMORY}"
    return placed(text, name, path, worker).caused_by(error)


class WorkerError(TimelyError, RuntimeError):
    """A worker's process ended without a result, or a worker was used in a way that it does not allow."""


class PeerLostError(TimelyError, ConnectionError):
    """Another worker of the run failed or disconnected."""


class AuthenticationError(TimelyError, ConnectionError):
    """A peer does not hold the run's key."""


class StalledError(TimelyError, RuntimeError):
    """A dataflow cannot complete: nothing is left to do, and an input or capability is still held."""


class RecoveryError(TimelyError, RuntimeError):
    """A run cannot take a checkpoint, or cannot resume from one."""


class StateError(RecoveryError):
    """An operator's state cannot be saved or restored: not registered, not picklable, or not rescalable."""


class CheckpointError(RecoveryError):
    """A checkpoint cannot be written or read: a full disk, a damaged or missing file, or a newer run that has taken over."""


class ChangedDataflowError(RecoveryError):
    """A checkpoint belongs to another dataflow than the one that resumes."""


class SchemaError(TimelyError, ValueError):
    """Data does not have the expected columns or types."""


class ConnectorError(TimelyError, RuntimeError):
    """A source or sink that cannot go on: its broker cannot be reached, has lost positions, or has another writer's rows."""


class FeedError(OperatorError, ValueError):
    """A row of a change feed that cannot be applied to its table; the message names the input, the row and what to do."""

    def placed(self, message: str, name: str, path: str, worker: int) -> FeedError:
        return FeedError(message, name, path, worker)


class SqlError(TimelyError, ValueError):
    """A query that is not kept up to date, with the construct and its position; or a value that cannot be computed."""


class ViewError(TimelyError, RuntimeError):
    """A view or query of a server has no result: it failed in an epoch, took too long, or was one too many."""


class DiskFullError(ViewError):
    """A durable server has no space for a write, which has changed nothing."""


class SparkError(TimelyError, RuntimeError):
    """Spark cannot run the dataflow: too few slots, no usable Java, a failed stage."""


class OutputError(ConfigurationError, KeyError):
    """A result has no output of that name; a ``KeyError``, since results are mappings."""


class DeliveryError(TimelyError, RuntimeError):
    """The function that receives a stream's epochs raised at ``epoch``; the cause is what it raised."""

    def __init__(self, message: str, epoch: int = -1) -> None:
        super().__init__(message)
        self.epoch = epoch

    def __reduce__(self) -> tuple[type[DeliveryError], tuple[str, int]]:
        return type(self), (str(self), self.epoch)


class DifferenceError(TimelyError, ValueError):
    """Differences that an operator cannot work with: it takes records away, and they cannot be negated."""


class NotCompleteError(TimelyError, ValueError):
    """A read at a time that is not complete yet: updates may still come."""


class CompactedError(TimelyError, ValueError):
    """A read at a time whose history has been given up."""


class InvariantViolation(TimelyError, AssertionError):
    """An ``invariant`` of every run does not hold, named by its id; ``decisions`` replays the simulation that found it.

    An ``AssertionError`` too, so that tests count it as a failure.
    """

    def __init__(self, invariant: str, message: str, decisions: Sequence[object] = ()) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.message = message
        self.decisions: tuple[object, ...] = tuple(decisions)

    def __reduce__(self) -> tuple[type[InvariantViolation], tuple[str, str, tuple[object, ...]]]:
        return type(self), (self.invariant, self.message, self.decisions)


class LawViolation(TimelyError, AssertionError):
    """A timestamp, summary or refinement type breaks a ``law`` of progress tracking; ``counterexample`` has the values."""

    def __init__(self, message: str, law: str = "", counterexample: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.law = law
        self.counterexample: dict[str, Any] = dict(counterexample or {})

    def __reduce__(self) -> tuple[type[LawViolation], tuple[str, str, dict[str, object]]]:
        return type(self), (str(self), self.law, self.counterexample)
