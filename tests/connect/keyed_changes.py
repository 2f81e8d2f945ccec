"""Random changes of a table with a key."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from timely.connect import Change


def keyed_changes(seed: int, count: int, row_of: Callable[[random.Random], tuple[Any, ...]]) -> list[Change]:
    """Changes of rows whose key is all but their last column: unique after each pair of a row that goes and one that comes."""
    choice = random.Random(seed)
    rows: dict[Any, Any] = {}
    changes: list[Change] = []
    for _ in range(count):
        *key, _ = row = row_of(choice)
        if tuple(key) in rows:
            changes.append((rows.pop(tuple(key)), -1))
        if choice.random() < 0.7:
            rows[tuple(key)] = row
            changes.append((row, 1))
    return changes
