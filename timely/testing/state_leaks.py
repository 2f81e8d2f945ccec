"""``leaked``: what an operator's registered state has for keys that it did not have before, in words."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

from timely.errors import brief
from timely.testing.memory_registry import Registration, Snapshot


def leaked(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> list[str]:
    """Return the items of state that came between two snapshots of all workers, with their keys; none if none stays.

    Take the snapshots when the dataflow has settled, and send the same keys in between: then whatever is new was kept for times
    that are over. The key of an item that is a pair, such as ``(key, value)``, is its first part, else the item itself.

    >>> import timely
    >>> from timely.testing import MemoryStateRegistry, settle
    >>> def remember(capability, info):
    ...     seen = {}
    ...     info.register_state(lambda: ((None, item) for item in seen.items()), seen.update)
    ...     def logic(input, output):
    ...         for capability, batch in input:
    ...             seen[capability.time] = sum(batch)  # and never drops it
    ...     return logic
    >>> worker = timely.Worker()
    >>> registry = MemoryStateRegistry(worker)
    >>> with worker.dataflow(int) as scope:
    ...     numbers, stream = scope.new_input()
    ...     _ = stream.unary(timely.Pipeline, "remember", remember)
    >>> found = []
    >>> for epoch in range(2):
    ...     numbers.send(5)
    ...     numbers.advance_to(epoch + 1)
    ...     settle([worker])
    ...     found.append(registry.snapshot())
    >>> leaked(found[:1], found[1:])
    ['/dataflow0/remember#1 still has state for the key 1: (1, 5)']
    """
    known = {(registration[:2], key) for registration, key, _ in _items(before)}
    return [
        f"{registration[1]} still has state for the key {key}: {brief(item)}"
        for registration, key, item in _items(after)
        if (registration[:2], key) not in known
    ]


def _items(snapshots: Iterable[Snapshot]) -> Iterable[tuple[Registration, str, Any]]:
    """Yield each item of registered state with its registration, and its key as text."""
    for snapshot in snapshots:
        for registration, pieces in snapshot.items():
            for piece in pieces:
                _, item = pickle.loads(piece)
                yield registration, brief(_key_of(item)), item


def _key_of(item: Any) -> object:
    return item[0] if isinstance(item, tuple) and len(item) == 2 else item
