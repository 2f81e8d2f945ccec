"""``StatusLine``: one line of a terminal that says how far a run is, and numbers short enough for it.

Invariant: it is written only where it begins a line of the terminal, as far as this process knows.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TextIO

from timely.errors import printable

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_WIDTH: Final = 80
"""Columns of a terminal that does not say how many it has."""

_ERASE: Final = "\r\x1b[K"


class StatusLine:
    """One line of a terminal that renews itself. ``shared``: another process writes one on the same terminal."""

    def __init__(self, terminal: TextIO, *, shared: bool = False) -> None:
        self._terminal = terminal
        self._put: Callable[[str], object] = terminal.write
        self._shared = shared
        self._written = False
        self._interrupted = False

    def write(self, text: str) -> None:
        """Replace the text, cut to the width; not inside an unfinished line of the program, or in a shell's background."""
        if not text:
            self.clear()
            return
        with contextlib.suppress(OSError, ValueError):
            if self._interrupted or _in_background(self._terminal.fileno()):
                return
            width = os.get_terminal_size(self._terminal.fileno()).columns or _WIDTH
            self._put(f"{_ERASE}{printable(text)[: width - 1]}")
            self._terminal.flush()
            self._written = True

    def clear(self) -> None:
        if self._written:
            self._erase()
            self._written = False

    def _erase(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._put(_ERASE)
            self._terminal.flush()

    @contextlib.contextmanager
    def beside(self, *streams: TextIO | None) -> Iterator[None]:
        """Clear the line before anything is written to those of the streams that are terminals, until the block ends."""
        with contextlib.ExitStack() as stack:
            for stream in dict.fromkeys(streams):
                if stream is not None and is_terminal(stream) and hasattr(stream, "__dict__"):
                    stack.enter_context(_in_place(stream, functools.partial(self._make_way, stream.write)))
            yield
        self._shared = False

    def _make_way(self, write: Callable[[str], int], text: str) -> int:
        if self._shared and not self._interrupted:
            self._erase()
        self.clear()
        self._interrupted = self._interrupted if not text else not text.endswith("\n")
        return write(text)


class NotebookLine:
    """The same below a notebook's cell, which ``show(text)`` renews; nothing is shown before there is a text."""

    def __init__(self, show: Callable[[str], Callable[[str], object]]) -> None:
        self._show = show
        self._renew: Callable[[str], object] | None = None

    def write(self, text: str) -> None:
        if self._renew is not None:
            self._renew(text)
        elif text:
            self._renew = self._show(text)

    def clear(self) -> None:
        if self._renew is not None:
            self._renew("")

    def beside(self, *streams: TextIO | None) -> contextlib.AbstractContextManager[None]:
        """Do nothing: a cell's output is apart from this."""
        return contextlib.nullcontext()


class RelayedLine(NotebookLine):
    """The line of a notebook from another process than the notebook's kernel, which alone can show it."""

    def __init__(self, sender: Connection) -> None:
        super().__init__(self._send)
        self._sender = sender

    def _send(self, text: str) -> Callable[[str], object]:
        with contextlib.suppress(OSError):  # the kernel has gone
            self._sender.send(text)
        return self._send


@contextlib.contextmanager
def relayed_line() -> Iterator[RelayedLine | None]:
    """Yield what other processes write to for the line of the cell that runs; ``None`` where there is none."""
    line = notebook_line()
    if line is None:
        yield None
        return
    from multiprocessing import Pipe

    receiver, sender = Pipe(duplex=False)

    def show() -> None:
        for text in iter(receiver.recv, None):
            line.write(text)

    thread = threading.Thread(target=show, name="timely notebook line", daemon=True)
    thread.start()
    try:
        yield RelayedLine(sender)
    finally:
        sender.send(None)
        thread.join()
        line.clear()
        sender.close()
        receiver.close()


def show_while(thing: Any, goes_on: Callable[[], bool]) -> None:
    """Show what ``_repr_html_`` returns, in a notebook's cell, and anew each second while it goes on; elsewhere its ``repr``."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        print(repr(thing))
        return
    over = threading.Event()

    def content() -> dict[str, str]:
        return {"text/plain": repr(thing), "text/html": thing._repr_html_()}

    def renew() -> None:
        while not over.wait(1.0):
            if not goes_on():
                over.set()
            handle.update(content(), raw=True)

    handle = ipython.display.display(content(), raw=True, display_id=True)
    if goes_on():
        threading.Thread(target=renew, name="timely notebook cell", daemon=True).start()


def notebook_line() -> NotebookLine | None:
    """Return the line of the cell that runs; ``None`` where there is none, as at IPython's prompt."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return None
    display = ipython.display.display

    def show(text: str) -> Callable[[str], object]:
        handle = display(_plain(text), raw=True, display_id=True)
        return lambda text: handle.update(_plain(text), raw=True)

    return NotebookLine(show)


def _plain(text: str) -> dict[str, str]:
    return {"text/plain": text}


@contextlib.contextmanager
def _in_place(stream: TextIO, write: Callable[[str], int]) -> Iterator[None]:
    """Replace a stream's ``write`` until the block ends, unless something else replaces it meanwhile."""
    own = vars(stream)
    before = own.get("write")
    own["write"] = write
    try:
        yield
    finally:
        if own.get("write") is write:
            del own["write"]  # uncovers that of the class
            if before is not None:
                own["write"] = before


def erase(terminal: TextIO | None) -> None:
    """Empty the line of a terminal's cursor."""
    if terminal is not None and is_terminal(terminal):
        with contextlib.suppress(OSError, ValueError):
            terminal.write(_ERASE)
            terminal.flush()


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal with a cursor."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False  # closed


def _in_background(terminal: int) -> bool:
    """Return whether a shell has put this process into the background."""
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except (AttributeError, OSError):
        return False  # no such system, or another terminal


def count(number: int) -> str:
    """Return a count in three digits or so.

    >>> [count(number) for number in (0, 999, 12_345, 1_200_000, 3_000_000_000)]
    ['0', '999', '12.3 k', '1.2 M', '3.0 G']
    """
    for size, sign in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.1f} {sign}"
    return str(number)
