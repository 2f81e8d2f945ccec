"""Where in a program an operator was built: the innermost line that is not this library's own.

It is a code object and a line number: one walk up the stack for each operator, and no text before somebody asks.
"""

from __future__ import annotations

import os
import sys
import warnings
from types import CodeType, FrameType
from typing import Final

import attrs

from timely.errors import TimelyWarning

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
