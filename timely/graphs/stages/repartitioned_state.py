"""``register_state``: operator state that belongs to a worker and not to a key, and how other workers repartition it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeVar

from timely.dataflow import OperatorInfo
from timely.errors import StateError, brief

P = TypeVar("P")

Log: TypeAlias = Callable[[Any], None]
"""Adds a change of an operator's state to the next checkpoint."""


def register_state(
    info: OperatorInfo,
    save: Callable[[], Iterable[Any]],
    load: Callable[[Any], object],
    repartition: Callable[[Any, int, int], Iterable[Any]],
    *,
    logged: bool = True,
) -> Log | None:
    """Register state of an operator, in its constructor; return the log for its changes, None without recovery.

    ``save()`` returns all of it as items, ``load(item)`` adds one. With another number of workers each worker loads, for each
    item of worker ``sender`` of so many ``senders``, the items that ``repartition(item, sender, senders)`` returns.
    """

    def load_all(items: Iterable[Any]) -> None:
        for item in items:
            load(item)

    def rescale(saved: Sequence[Iterable[Any]]) -> None:
        for sender, items in enumerate(saved):
            for item in items:
                load_all(repartition(item, sender, len(saved)))

    log = info.register_state(lambda: ((None, item) for item in save()), load_all, rescale=rescale, logged=logged)
    return (lambda item: log.append(None, item)) if log.kept else None


def register_parts(
    info: OperatorInfo,
    parts: MutableMapping[Any, P],
    format: str,
    saved: Callable[[P], Any] = lambda part: part,
    restored: Callable[[Any], P] = lambda part: part,
) -> None:
    """Register what an operator in a loop has of each outer time, by time. It is there in the middle of a loop only, where no
    other number of workers can resume. ``format`` changes with the attributes of the parts; ``StateError`` for another one.
    A checkpoint has what ``saved`` makes of a part.
    """

    def load(items: Iterable[Any]) -> None:
        for written_as, *item in items:
            if written_as != format:
                raise StateError(
                    f"{info.path}: the checkpoint in the middle of this loop has format {brief(written_as)}, and this version of"
                    f" the library reads {format!r}: finish the run with the version that wrote it, or start anew in another"
                    " directory"
                )
            time, part = item
            parts[time] = restored(part)

    info.register_state(lambda: [(None, (format, time, saved(part))) for time, part in parts.items()], load)
