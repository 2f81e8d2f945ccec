"""Tracebacks of a user's own lines: the library's frames are folded where an error leaves it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Final

from timely.dataflow.origin import is_ours
from timely.errors import OperatorError, TimelyError

_NOTE: Final = "(frames of timely are folded: TIMELY_TRACEBACK=full in the environment shows them)"


def fold_tracebacks(error: BaseException) -> None:
    """Remove the library's frames from the tracebacks of an error and its causes; an ``OperatorError`` gets a note of it.

    An error that the library itself raises by mistake keeps its frames. Every public call that runs operators ends with
    ``except Exception as error: fold_tracebacks(error); raise``. That ``raise`` does not add its own frame again.

    >>> import timely, traceback
    >>> try:
    ...     timely.example(lambda scope: scope.to_stream([0]).map(lambda x: 1 // x))
    ... except timely.OperatorError as error:
    ...     [frame.name for frame in traceback.extract_tb(error.__cause__.__traceback__)], "folded" in error.__notes__[0]
    (['<lambda>'], True)
    """
    if os.environ.get("TIMELY_TRACEBACK") == "full":
        return
    folded = False
    for each in _chain(error):
        trace = each.__traceback__
        frames = list(_frames(trace))
        if not frames or (not isinstance(each, TimelyError) and _is_library(frames[-1])):
            continue
        outside = _without_library(frames)
        if len(outside) == len(frames):
            continue
        trace = None
        for frame in reversed(outside):
            frame.tb_next = trace
            trace = frame
        each.__traceback__ = trace
        folded = True
    if folded and isinstance(error, OperatorError) and _NOTE not in getattr(error, "__notes__", ()):
        error.add_note(_NOTE)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that Python would print before it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, None if each.__suppress_context__ else each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _without_library(frames: list[TracebackType]) -> list[TracebackType]:
    outside: list[TracebackType] = []
    inside = False
    for frame in frames:
        inside = _is_library(frame) or (inside and frame.tb_frame.f_code.co_filename == contextlib.__file__)
        if not inside:
            outside.append(frame)
    return outside


def _is_library(trace: TracebackType) -> bool:
    return is_ours(trace.tb_frame.f_code.co_filename)
