"""What joins make of a pair of records, as rows and as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from timely.differential.updates.updates import Container, Diff, Kernel, Update

if TYPE_CHECKING:
    from timely.differential.updates.int_columns import Array
    from timely.differential.updates.row_columns import Columns


ColumnsOf: TypeAlias = "Callable[[list[Any]], Columns | None]"

Collect: TypeAlias = Callable[[list[Update], Any, Any, Any, Diff], None]


class JoinResult(NamedTuple):
    """What a join makes of a pair: ``collect(results, key, left, right, diff)`` appends updates to a list.

    ``columns(keys, left, right)`` does the same for arrays, and returns the keys and the values of the records.
    ``rows(keys, left, right, diff)`` does it for columns of rows, and returns a container.
    """

    collect: Collect
    columns: Kernel | None = None
    rows: Callable[[Array, Any, Any, int], Container] | None = None
    columns_of: tuple[ColumnsOf, ColumnsOf] | None = None
    """What makes columns of rows of the left and of the right side; those return ``None`` where they cannot."""


class Pairing(NamedTuple):
    """What a join makes of a pair, for whoever asks why a record is there, and whether records of each side are pairs or keys."""

    collect: Collect
    pairs: tuple[bool, bool]


class GroupShape(NamedTuple):
    """Whether the records that a reduction reads are pairs or keys, and those that it makes: for the same."""

    pairs: bool
    results: bool


def _collect_pair(results: list[Update], key: object, left: object, right: object, diff: Diff) -> None:
    results.append(((key, (left, right)), diff))


def _collect_left(results: list[Update], key: object, left: object, right: object, diff: Diff) -> None:
    results.append(((key, left), diff))


def _left_rows(keys: Array, left: Columns | None, right: Columns | None, diff: int) -> Container:
    from timely.differential.updates.row_columns import KeyedRows, RowColumns

    return KeyedRows(keys, RowColumns(left or (), len(keys), diff))


PAIR: Final = JoinResult(_collect_pair)
LEFT: Final = JoinResult(_collect_left, lambda keys, left, right: (keys, left), _left_rows, (lambda rows: None, lambda rows: ()))


def mapped(f: Callable[[Any, Any, Any], object], columns: Kernel | None = None) -> JoinResult:
    """Return what collects ``f(key, left, right)``; ``columns`` does the same for arrays."""

    def collect(results: list[Update], key: object, left: object, right: object, diff: Diff) -> None:
        results.append((f(key, left, right), diff))

    return JoinResult(collect, columns)
