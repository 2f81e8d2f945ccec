"""How the ready-made operators register their state: with keys, without keys, as a log, or as a source's position; and where
an input of a run that resumes begins.

Invariant: on any number of workers, each item is restored where its operator needs it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import attrs

from timely.dataflow import Distribute, Exchange, OperatorInfo, ScopeBuilder, route
from timely.errors import StateError, TimestampError, brief
from timely.operators.type_variables import T
from timely.progress import Refinement

I = TypeVar("I")  # noqa: E741  # an item of state


def key_route(key: Callable[[Any], Any] | None) -> Callable[[Any], int]:
    """Return the function from a record's key to its route, where records are exchanged by ``key(k)``, or by ``k`` itself."""
    return route if key is None else lambda k: route(key(k))


def register_keyed_state(
    info: OperatorInfo, save: Callable[[], Iterable[I]], load: Callable[[Iterable[I]], object], route: Callable[[I], int]
) -> None:
    """Register items that belong to the worker ``route(item) % peers``."""
    info.register_state(lambda: ((route(item), item) for item in save()), load)


def register_list_state(info: OperatorInfo, save: Callable[[], Iterable[I]], load: Callable[[Iterable[I]], object]) -> None:
    """Register items without a key.

    On another number of workers, worker ``i`` loads those of each worker ``j`` with ``j % peers == i``.
    """
    info.register_state(
        lambda: ((None, item) for item in save()), load, rescale=lambda parts: load(share(parts, info.worker, info.peers))
    )


def register_union_state(info: OperatorInfo, save: Callable[[], Iterable[I]], load: Callable[[Iterable[I]], object]) -> None:
    """Register items of which, on another number of workers, each worker loads all."""
    info.register_state(
        lambda: ((None, item) for item in save()), load, rescale=lambda parts: load(itertools.chain.from_iterable(parts))
    )


def register_row_state(
    info: OperatorInfo,
    pact: Exchange | Distribute,
    save: Callable[[], Iterable[I]],
    load: Callable[[Iterable[I]], object],
    *,
    logged: bool = False,
) -> Any:
    """Register items ``(..., batch)`` of rows, and return what ``register_state`` does.

    On another number of workers, each worker loads of every batch the rows that ``pact`` sends it.
    """

    def rescale(parts: Sequence[Iterable[Any]]) -> None:
        for *place, batch in itertools.chain.from_iterable(parts):
            shares = pact.parts(None, batch, info.peers)
            load((*place, part) for worker, part in shares if worker == info.worker)  # type: ignore[misc]

    return info.register_state(lambda: ((None, item) for item in save()), load, rescale=rescale, logged=logged)


def share(parts: Sequence[Iterable[I]], worker: int, peers: int) -> Iterator[I]:
    """Return the items of each ``parts[j]`` with ``j % peers == worker``."""
    return itertools.chain.from_iterable(parts[worker::peers])


class ChangeLog(Generic[I]):
    """Keyed state of which a checkpoint takes what was logged since the last one, and at times all that ``save()`` returns."""

    __slots__ = ("_entries", "_log", "_places", "_route")

    def __init__(
        self,
        info: OperatorInfo,
        save: Callable[[], Iterable[I]],
        load: Callable[[Iterable[I]], object],
        route: Callable[[I], int],
    ) -> None:
        self._route = route
        self._log = info.register_state(lambda: ((route(item), item) for item in save()), load, logged=True)
        self._entries = self._log.entries
        self._places: dict[Any, int] = {}

    @property
    def enabled(self) -> bool:
        """Whether the run has checkpoints; without them the log stays empty."""
        return self._log.kept

    def append(self, item: I) -> None:
        self._log.append(self._route(item), item)

    def replace(self, key: Any, item: I) -> None:
        """Log the state of ``key``, in place of what was logged for it since the last checkpoint."""
        entries = self._log.entries
        if entries is not self._entries or len(entries) < len(self._places):  # a checkpoint has drained the log
            self._entries, self._places = entries, {}
        place = self._places.setdefault(key, len(entries))
        if place < len(entries):
            entries[place] = (self._route(item), item)
        else:
            self.append(item)


class SourcePosition:
    """How many items a source has sent, and whether that was all: a resumed run skips them.

    ``StateError`` on another number of workers before the end, since the items of each worker are not known then.
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


@attrs.frozen(eq=False)
class ResumeTime(Generic[T]):
    """The time at which a run resumes (``timely.recovery``), translated to the times of a scope."""

    _begins: Any
    _nested: Sequence[Refinement[Any, Any]]

    def reached(self, time: T) -> bool:
        outer: Any = time
        for scope in self._nested:
            outer = scope.to_outer(outer)
        return bool(self._begins <= outer)

    @property
    def first(self) -> T:
        """The first time of the scope that is not before the run resumes."""
        inner = self._begins
        for scope in reversed(self._nested):
            inner = scope.to_inner(inner)
        return cast(T, inner)

    def refusal(self, info: OperatorInfo, time: T, remedy: str) -> TimestampError:
        """Return the error for sending at an earlier ``time``; ``remedy`` is what to call first."""
        return TimestampError(
            f"input {info.name!r} ({info.path}) is at {brief(time)}, and the run goes on from a checkpoint at"
            f" {brief(self._begins)}, which has all that came before: {remedy}({brief(self.first)}) first, and send what comes"
            " then"
        )


def resume_time(scope: ScopeBuilder[T], info: OperatorInfo) -> ResumeTime[T] | None:
    """Return the time at which the dataflow of an input resumes from a checkpoint, or ``None``."""
    begins, nested, around = info.begins, [], scope
    if begins is None:
        return None
    while around.parent is not None:
        nested.append(around.subgraph.refinement)
        around = around.parent
    try:
        around.subgraph.domain.check(begins)
    except TimestampError:
        return None  # a time of another dataflow
    return ResumeTime(begins, nested)
