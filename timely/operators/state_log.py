"""What the ready-made operators say of their state in like terms: where state goes that has no key, and what has changed.

On top of ``OperatorInfo.register_state``, as anyone's operator might be. The invariants: each item that a worker had is one
worker's on any number of workers; and of several changes to the state of one key, a checkpoint gets the last alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from timely.dataflow import OperatorInfo, route
from timely.errors import StateError


class Changed(Protocol):
    """Where changes of state are written, as ``OperatorInfo.register_state`` returns it."""

    kept: bool
    entries: list[tuple[int | None, Any]]

    def append(self, route: int | None, item: Any) -> None:
        """Add a change."""


class Changes:
    """The changes of the states of keys, in a log: the last one of each key since the log was last read.

    >>> class Log:
    ...     kept, entries = True, []
    ...     def append(self, route, item):
    ...         self.entries.append((route, item))
    >>> changes = Changes(Log())
    >>> for state in (1, 2, 3):
    ...     changes.note(7, "a", ("a", state))
    >>> Log.entries
    [(7, ('a', 3))]
    """

    __slots__ = ("_entries", "_log", "_places")

    def __init__(self, log: Changed) -> None:
        self._log = log
        self._entries = log.entries
        self._places: dict[Any, int] = {}

    @property
    def kept(self) -> bool:
        """Whether anybody wants to know; without recovery nobody does."""
        return self._log.kept

    def note(self, route: int | None, key: Any, item: Any) -> None:
        """Write down what brings the state of ``key`` up to date."""
        entries = self._log.entries
        if entries is not self._entries or len(entries) < len(self._places):  # it has been read since
            self._entries, self._places = entries, {}
        place = self._places.setdefault(key, len(entries))
        if place < len(entries):
            entries[place] = (route, item)
        else:
            self._log.append(route, item)


def keep_here(info: OperatorInfo, save: Callable[[], Iterable[Any]], load: Callable[[Iterable[Any]], object]) -> None:
    """Declare state that has no key: items that any one worker can go on with, of which it may get several workers'.

    On another number of workers, worker ``i`` goes on with those of each ``j`` with ``j % peers == i``.

    >>> import timely
    >>> def constructor(capability, info):
    ...     seen = []
    ...     keep_here(info, lambda: seen, seen.extend)
    ...     return lambda output: None
    >>> timely.example(lambda scope: scope.source("demo", constructor))
    []
    """

    def pieces() -> Iterator[tuple[None, Any]]:
        for item in save():
            yield None, item

    info.register_state(pieces, load, rescale=lambda parts: load(dealt(parts, info.worker, info.peers)))


def dealt(parts: Sequence[Iterable[Any]], worker: int, peers: int) -> Iterator[Any]:
    """Return the items of each ``parts[j]`` with ``j % peers == worker``.

    >>> list(dealt(["ab", "cd", "e"], 0, 2))
    ['a', 'b', 'e']
    """
    for items in parts[worker::peers]:
        yield from items


def owner(key: Callable[[Any], Any] | None) -> Callable[[Any], int]:
    """Return the function that says what number a key's state is dealt by, where its records are dealt by ``key(k)``, or ``k``.

    >>> owner(None)("a") == owner(str.lower)("A") == route("a")
    True
    """
    if key is None:
        return route
    chosen = key
    return lambda k: route(chosen(k))


class Sent:
    """How much a source has sent of what it was given, and whether that was all: what a run that goes on need not send again.

    ``StateError`` on another number of workers, unless all of it was sent: nobody knows which worker is given what then.
    """

    __slots__ = ("_label", "count", "over")

    def __init__(self, info: OperatorInfo) -> None:
        self.count = 0
        self.over = False
        self._label = f"operator {info.name!r} ({info.path})"
        info.register_state(lambda: [(None, (self.count, self.over))], self._load, rescale=self._rescale)

    def _load(self, items: Iterable[tuple[int, bool]]) -> None:
        for self.count, self.over in items:
            pass

    def _rescale(self, parts: Sequence[Iterable[tuple[int, bool]]]) -> None:
        for worker, items in enumerate(parts):
            for count, over in items:
                if not over:
                    raise StateError(
                        f"{self._label}: worker {worker} of {len(parts)} had sent {count} and was not at the end; it is not known"
                        f" which worker goes on with that: go on with {len(parts)} workers, or send by an input handle"
                    )
        self.over = True
