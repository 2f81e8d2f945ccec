"""``Terminal``: a terminal of the test's own."""

from __future__ import annotations

import os
import pty


class Terminal:
    """A terminal of one's own; what is written to it can be read."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w")
        self._written = b""
        self._marks = 0

    def shown(self) -> str:
        """All that has been written to it so far; a mark behind it says that it has come through."""
        os.write(self.stream.fileno(), b"\x05")
        self._marks += 1
        while self._written.count(b"\x05") < self._marks:
            self._written += os.read(self._master, 10_000)
        return self._written.replace(b"\x05", b"").decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)
