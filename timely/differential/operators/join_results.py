"""What joins make of a pair of records, as rows and as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs


@attrs.frozen
class JoinResult:
    """What a join makes of a pair: ``collect(results, key, left, right, diff)`` appends updates to a list.

    ``columns(keys, left, right)`` does the same for arrays, and returns the keys and the values of the records.
    ``rows(keys, left, right, diff)`` does it for columns of rows, and returns a container.
    """

    collect: Callable[..., None]
    columns: Callable[..., Any] | None = None
    rows: Callable[..., Any] | None = None


def _collect_pair(results: list[Any], key: Any, left: Any, right: Any, diff: Any) -> None:
    results.append(((key, (left, right)), diff))


def _collect_left(results: list[Any], key: Any, left: Any, right: Any, diff: Any) -> None:
    results.append(((key, left), diff))


def _left_rows(keys: Any, left: Any, right: Any, diff: int) -> Any:
    from timely.differential.updates.row_columns import KeyedRows, RowColumns

    return KeyedRows(keys, RowColumns(left, len(keys), diff))


PAIR: Final = JoinResult(_collect_pair)
LEFT: Final = JoinResult(_collect_left, lambda keys, left, right: (keys, left), _left_rows)


def mapped(f: Callable[[Any, Any, Any], Any], columns: Callable[..., Any] | None = None) -> JoinResult:
    """Return what collects ``f(key, left, right)``; ``columns`` does the same for arrays."""

    def collect(results: list[Any], key: Any, left: Any, right: Any, diff: Any) -> None:
        results.append((f(key, left, right), diff))

    return JoinResult(collect, columns)
