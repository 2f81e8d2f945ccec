"""The lines of a program among the library's own: where an operator was built, what is warned of, and what a traceback shows.

The origin of an operator is a code object and a line number: one walk up the stack, and no text before somebody asks.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, Final, TypeVar

import attrs

from timely.errors import OperatorError, TimelyError, TimelyWarning

C = TypeVar("C", bound=type)

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PROGRAMS: Final = _PACKAGE + "cli" + os.sep
_NAME: Final = "timely" + os.sep


@attrs.frozen
class Origin:
    """A line of a program."""

    _code: CodeType
    line: int

    @property
    def file(self) -> str:
        """The file's name, or ``<stdin>`` and the like."""
        return self._code.co_filename

    @property
    def function(self) -> str:
        """The function that the line is in, or ``<module>``."""
        return self._code.co_qualname

    def __str__(self) -> str:
        cell = _cell(self.file)
        return f"{cell or os.path.basename(self.file)}:{self.line} in {self.function}"


def _cell(file: str) -> str | None:
    """Return the notebook's name of a cell, such as ``cell In[3]``; IPython gives each cell a file name of its own."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(file)
    return None if name is None else f"cell {name[1]}"


def is_ours(file: str) -> bool:
    """Return whether a file is the library's own. The demos of its command are not: they use it.

    A compiled module names its file relative to the package; a user's file in a folder ``timely`` does not exist there.
    """
    if file.startswith(_NAME) and os.path.exists(path := _PACKAGE + file.removeprefix(_NAME)):
        file = path
    return file.startswith(_PACKAGE) and not file.startswith(_PROGRAMS)


def origin() -> Origin | None:
    """Return the innermost line of the call stack that is not this library's; ``None`` if there is none.

    >>> here = origin()
    >>> here.function, here.line
    ('<module>', 1)
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if not is_ours(code.co_filename):
            return Origin(code, frame.f_lineno)
        frame = frame.f_back
    return None


_SHOWN: Final[dict[str | tuple[str, type[Warning], int], int]] = {}
"""The registry of shown warnings that Python's ``warnings`` has for each module."""


def warn(message: str, place: Origin | None = None) -> None:
    """Warn about the line of the program at ``place``, or the one that led here."""
    place = place or origin()
    if place is None:
        warnings.warn(message, TimelyWarning, stacklevel=2)
    else:
        warnings.warn_explicit(message, TimelyWarning, place.file, place.line, registry=_SHOWN)


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


def folded(cls: C) -> C:
    """Have the public methods of a class end with errors whose tracebacks begin with the line of the program."""
    for name, method in list(vars(cls).items()):
        if not name.startswith("_") and isinstance(method, FunctionType):
            setattr(cls, name, _folding(method))
    return cls


def _folding(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except Exception as error:
            fold_tracebacks(error)
            raise

    return call


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


_CALLED: Final = (contextlib.__file__, os.path.join(os.path.dirname(os.__file__), "concurrent", "futures", "_base.py"))
"""Modules of Python through which the library calls."""


def _without_library(frames: list[TracebackType]) -> list[TracebackType]:
    outside: list[TracebackType] = []
    inside = False
    for frame in frames:
        inside = _is_library(frame) or (inside and frame.tb_frame.f_code.co_filename in _CALLED)
        if not inside:
            outside.append(frame)
    return outside


def _is_library(trace: TracebackType) -> bool:
    return is_ours(trace.tb_frame.f_code.co_filename)
