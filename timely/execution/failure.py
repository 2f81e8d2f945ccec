"""``Failure``: an error on its way to another process, with its causes and its traceback.

Invariant: an error arrives. One that cannot be pickled, or not be read there, arrives as a ``WorkerError`` with the same causes.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from typing import NamedTuple

from timely.dataflow.containers.pickling import dumps
from timely.errors import WorkerError, error_text


class ErrorLink(NamedTuple):
    """One error of a chain: its pickle, if it has one, its text and notes, and the places of the errors that belong to it."""

    body: bytes
    text: str
    notes: list[str]
    cause: int | None
    context: int | None
    suppressed: bool
    members: list[int]


class Failure(NamedTuple):
    """The links of an error's chain, its own the first, and its traceback."""

    links: list[ErrorLink]
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure of an error.

        >>> error = KeyError("a")
        >>> error.__cause__ = OSError("b")
        >>> Failure.of(error).error().__cause__
        OSError('b')
        """
        chain, places = [error], {id(error): 0}

        def place(other: BaseException) -> int:
            if id(other) not in places:
                places[id(other)] = len(chain)
                chain.append(other)
            return places[id(other)]

        links = []
        for one in chain:  # grows meanwhile
            hidden = one.__suppress_context__
            cause = None if one.__cause__ is None else place(one.__cause__)
            context = None if hidden or one.__context__ is None else place(one.__context__)
            members = [place(member) for member in one.exceptions] if isinstance(one, BaseExceptionGroup) else []
            notes = [str(note) for note in getattr(one, "__notes__", ())]
            links.append(ErrorLink(_pickled(one), error_text(one), notes, cause, context, hidden, members))
        return cls(links, "".join(traceback.format_exception(error)))

    def error(self) -> BaseException:
        """Return the error with its causes and notes; its traceback is one more note."""
        errors = [_read(link) for link in self.links]
        for link, group in zip(self.links, errors, strict=True):
            if isinstance(group, BaseExceptionGroup):  # its pickle has its members without their causes
                for place, member in zip(link.members, group.exceptions, strict=True):
                    errors[place] = member
        for link, error in zip(self.links, errors, strict=True):
            with contextlib.suppress(Exception):  # one that cannot be changed arrives alone
                if link.notes:
                    error.__notes__ = link.notes
                error.__cause__ = None if link.cause is None else errors[link.cause]
                error.__context__ = None if link.context is None else errors[link.context]
                error.__suppress_context__ = link.suppressed
        errors[0].add_note(f"in another process:\n{self.trace}")
        return errors[0]


def _pickled(error: BaseException) -> bytes:
    """Return an error as a pickle that can be read again, else ``b""``."""
    try:
        body = dumps(error)
        return body if isinstance(pickle.loads(body), BaseException) else b""
    except Exception:
        return b""


def _read(link: ErrorLink) -> BaseException:
    if not link.body:
        return WorkerError(link.text)
    try:
        error: BaseException = pickle.loads(link.body)
    except Exception as trouble:
        return WorkerError(f"a worker in another process raised what cannot be read here ({error_text(trouble)}): {link.text}")
    return error
