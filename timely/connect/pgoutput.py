"""What PostgreSQL's output plugin ``pgoutput`` says, version 1: transactions of inserts, updates and deletes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from timely.errors import ConnectorError


class RowChange(NamedTuple):
    """A row of a table that came, or with -1 went: the texts of its columns."""

    table: int
    columns: list[str]
    texts: list[str | None]
    diff: int


class Transactions:
    """Reads the messages of ``pgoutput``: a sequence of whole transactions.

    The copy may have those that committed before the place ``copied`` in the log: later, numbers of transactions come again.
    """

    def __init__(self, source: str, begin: int, snapshot: str, copied: int) -> None:
        self._source = source
        self._begin = begin
        self._copied = copied
        self._in_copy = snapshot_test(snapshot)
        self._message = b""
        self._at = 0

    def read(self, messages: Sequence[bytes]) -> tuple[list[RowChange], int]:
        """Return the changes that come after the position and that the snapshot does not have, and where the last one ends."""
        changes: list[RowChange] = []
        columns: dict[int, list[str]] = {}
        last, skipped = self._begin, False
        for self._message in messages:
            self._at = 1
            kind = self._message[:1]
            if kind == b"B":
                place = self._number(8)
                self._at += 8
                skipped = place < self._begin or (place < self._copied and self._in_copy(self._number(4)))
            elif kind == b"C":
                self._at += 9
                last = max(last, self._number(8))
            elif kind == b"R":
                number = self._number(4)
                columns[number] = self._columns()
            elif kind in (b"I", b"U", b"D") and not skipped:
                number = self._number(4)
                changes += self._changes(number, columns[number], whole=kind == b"I")
            elif kind == b"T" and not skipped:
                raise ConnectorError(
                    f"source {self._source!r}: a table was truncated, which does not say what its rows were: delete them"
                    " instead, and start anew with another name="
                )
        return changes, last

    def _changes(self, table: int, columns: list[str], *, whole: bool) -> Iterator[RowChange]:
        """Yield the old row and the new one of a change; a new one alone is the ``whole`` of an insert."""
        old: list[str | None] | None = None
        while self._at < len(self._message):
            kind = self._message[self._at : self._at + 1]
            self._at += 1
            texts = self._texts(old)
            if kind == b"N" and (whole or old is not None):
                yield RowChange(table, columns, texts, 1)
            elif kind == b"O":
                old = texts
                yield RowChange(table, columns, texts, -1)
            else:
                raise ConnectorError(
                    f"source {self._source!r}: the replica identity of a table was not full for a while, so that a change"
                    " does not say what the row was: start anew with another name="
                )

    def _texts(self, old: Sequence[str | None] | None) -> list[str | None]:
        texts: list[str | None] = []
        for place in range(self._number(2)):
            kind = self._message[self._at : self._at + 1]
            self._at += 1
            if kind == b"t":
                size = self._number(4)
                texts.append(self._message[self._at : self._at + size].decode())
                self._at += size
            elif kind == b"u" and old is not None:  # a large value that has not changed
                texts.append(old[place])
            else:
                texts.append(None)
        return texts

    def _columns(self) -> list[str]:
        for _ in ("schema", "table"):
            self._name()
        self._at += 1
        columns = []
        for _ in range(self._number(2)):
            self._at += 1
            columns.append(self._name())
            self._at += 8
        return columns

    def _name(self) -> str:
        end = self._message.index(b"\0", self._at)
        name = self._message[self._at : end].decode()
        self._at = end + 1
        return name

    def _number(self, size: int) -> int:
        number = int.from_bytes(self._message[self._at : self._at + size], "big")
        self._at += size
        return number


def snapshot_test(snapshot: str) -> Callable[[int], bool]:
    """Return what says whether a snapshot, ``xmin:xmax:running``, sees a transaction, of whose number 32 bits are known.

    >>> sees = snapshot_test("4294967297:4294967300:4294967298")
    >>> [number for number in (4294967295, 0, 1, 2, 3, 4, 5) if sees(number)]
    [4294967295, 0, 1, 3]
    """
    first, end, *running = snapshot.replace(",", ":").split(":")
    still = {int(number) for number in running if number}

    def sees(number: int) -> bool:
        whole = int(end) + (number - int(end) + (1 << 31)) % (1 << 32) - (1 << 31)
        return whole < int(first) or (whole < int(end) and whole not in still)

    return sees
