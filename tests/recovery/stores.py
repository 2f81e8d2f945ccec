"""Stores at which something happens, or goes wrong, at a moment that a test chooses."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from timely.recovery import LocalStore

# The documented names of the files (docs/recovery.md).
CLAIM, FENCE, MANIFEST, STATE, PARTIAL = ".claim", ".fence", ".manifest", ".state", ".partial"

Hook = Callable[[str, str], object]
"""``hook(moment, name)``: before "write", after each "chunk", when a piece is "whole" and before it has its name, when it is
"written", before it is "open", when it is "opened", and before "delete"."""

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


class HookedStore(LocalStore):
    """A directory that calls hooks."""

    def __init__(self, directory: Path, *hooks: Hook) -> None:
        super().__init__(directory)
        self.hooks = [*hooks]

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        self._call("write", name)
        super().write(name, self._watched(name, chunks))
        self._call("written", name)

    def open(self, name: str) -> BinaryIO:
        self._call("open", name)
        file = super().open(name)
        self._call("opened", name)
        return file

    def delete(self, name: str) -> None:
        self._call("delete", name)
        super().delete(name)

    def _watched(self, name: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            self._call("chunk", name)
        self._call("whole", name)

    def _call(self, moment: str, name: str) -> None:
        for hook in self.hooks:
            hook(moment, name)


def at(moment: str, endings: str | tuple[str, ...], deed: Callable[[], object], times: int | None = None) -> Hook:
    """Return a hook that does something whenever a piece of such a name comes to a moment, or the first ``times``."""
    left = [times]

    def hook(now: str, name: str) -> None:
        if now == moment and name.endswith(endings) and left[0] != 0:
            left[0] = None if left[0] is None else left[0] - 1
            deed()

    return hook


def fails_at(moment: str, endings: str | tuple[str, ...], error: BaseException, times: int | None = None) -> Hook:
    """Return a hook that raises an error there."""

    def fail() -> None:
        raise error

    return at(moment, endings, fail, times)
