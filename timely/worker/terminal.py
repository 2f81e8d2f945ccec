"""One line of a terminal on which a run says how far it is, and numbers short enough for it."""

from __future__ import annotations

import contextlib
import os
from typing import Final, TextIO

_WIDTH: Final = 80
"""Columns of a terminal that does not say how many it has."""


class StatusLine:
    """One line of a terminal that renews itself."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._written = False

    def write(self, text: str) -> None:
        """Put a text in place of the one before; what does not fit into the line is left out."""
        with contextlib.suppress(OSError, ValueError):
            width = os.get_terminal_size(self._terminal.fileno()).columns or _WIDTH
            self._terminal.write(f"\r\x1b[K{text[: width - 1]}")
            self._terminal.flush()
            self._written = True

    def clear(self) -> None:
        """Leave the line empty."""
        if self._written:
            with contextlib.suppress(OSError, ValueError):
                self._terminal.write("\r\x1b[K")
                self._terminal.flush()
            self._written = False


def count(number: int) -> str:
    """Return a count in three digits or so.

    >>> [count(number) for number in (0, 999, 12_345, 1_200_000, 3_000_000_000)]
    ['0', '999', '12.3 k', '1.2 M', '3.0 G']
    """
    for size, sign in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.1f} {sign}"
    return str(number)
