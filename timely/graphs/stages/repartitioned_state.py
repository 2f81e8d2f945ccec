"""``register_state``: operator state that belongs to a worker and not to a key, and how other workers repartition it."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any, TypeAlias

from timely.dataflow import OperatorInfo
from timely.errors import StateError

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


def register_parts(info: OperatorInfo, parts: MutableMapping[Any, Any]) -> None:
    """Register what an operator in a loop has of each outer time, by time. It is there in the middle of a loop only, where no
    other number of workers can resume. ``StateError`` for what another version of the class has written: it may be read wrongly.
    """

    def load(items: Iterable[Any]) -> None:
        for written_by, *item in items:
            if len(item) != 2 or written_by != _version(item[1]):
                raise StateError(
                    f"{info.path}: another version of the library wrote the checkpoint in the middle of this loop, and this one"
                    " cannot go on with it: finish the run with that version, or start anew in another directory"
                )
            time, part = item
            parts[time] = part

    info.register_state(lambda: [(None, (_version(part), time, part)) for time, part in parts.items()], load)


def _version(part: object) -> str:
    """Return a digest of the source that a part's class is from: its attributes have no format of their own."""
    try:
        source = inspect.getsource(sys.modules[type(part).__module__])
    except (OSError, TypeError):  # there is none, as of what is built in
        return ""
    return hashlib.sha256(source.encode()).hexdigest()
