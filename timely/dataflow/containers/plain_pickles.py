"""``verify``: whether a pickle of plain data can be loaded without harm, whoever wrote it.

Python's loader trusts its input: it allocates what a few bytes announce, sets attributes of classes, and hashes tuples so deep
that the process ends. So the opcodes are read first, as a virtual machine verifies code before it runs it. Invariant: what passes
is made of values, containers and calls, no deeper than ``DEEPEST``. To load and to walk it takes memory and time in proportion to
its bytes.
"""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Iterable
from typing import Final, TypeAlias

import attrs

DEEPEST: Final = 100
"""Levels of containers in each other: far from where Python refuses to compare, print or pickle them."""

SHARING: Final = 100
"""Values per byte, each counted as often as it is reached; with more sharing a few bytes take forever to walk."""

_FREE: Final = 1 << 16
"""Values that any pickle may have."""


def _table(default: int, *rows: tuple[int, Iterable[bytes]]) -> list[int]:
    """Return a number for each opcode."""
    table = [default] * 256
    for number, names in rows:
        for name in names:
            table[name[0]] = number
    return table


_WIDTH: Final = _table(
    -1,
    (0, (pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER)),
    (1, (pickle.BININT1,)),
    (2, (pickle.BININT2,)),
    (4, (pickle.BININT,)),
    (8, (pickle.BINFLOAT,)),
)
"""Bytes that follow a value of a fixed size; -1 for anything else."""

_SIZE_WIDTH: Final = _table(
    0,
    (1, (pickle.SHORT_BINUNICODE, pickle.SHORT_BINBYTES, pickle.LONG1)),
    (4, (pickle.BINUNICODE, pickle.BINBYTES, pickle.LONG4)),
    (8, (pickle.BINUNICODE8, pickle.BINBYTES8, pickle.BYTEARRAY8)),
)
"""Bytes of the size that a value begins with; 0 for anything else."""

_GET_WIDTH: Final = _table(0, (1, (pickle.BINGET,)), (4, (pickle.LONG_BINGET,)))
_TUPLE: Final = _table(0, (1, (pickle.TUPLE1,)), (2, (pickle.TUPLE2,)), (3, (pickle.TUPLE3,)))
_FILL: Final = _table(0, (1, (pickle.APPEND,)), (2, (pickle.SETITEM,)))
_SKIP: Final = _table(0, (1, (pickle.PROTO,)), (8, (pickle.FRAME,)))


def _codes(*names: bytes) -> frozenset[int]:
    return frozenset(name[0] for name in names)


_TO_MARK: Final = _codes(pickle.TUPLE, pickle.FROZENSET)
_EMPTY: Final = _codes(pickle.EMPTY_LIST, pickle.EMPTY_DICT, pickle.EMPTY_SET)
_FILL_TO_MARK: Final = _codes(pickle.APPENDS, pickle.SETITEMS, pickle.ADDITEMS)
_CALL: Final = _codes(pickle.REDUCE, pickle.NEWOBJ)
_NUMBER: Final = rb"K.|M..|[N\x88\x89]|J....|G........"  # points one by one are matched in 0.4 of the time
_TEXT: Final = rb"[\x8cC](?:" + b"|".join(re.escape(bytes([size])) + b".{%d}" % size for size in range(256)) + b")"
_VALUE: Final = b"(?:" + _NUMBER + b"|" + _TEXT + rb"\x94)"
_ROW: Final = _VALUE + rb"(?:\x85|" + _VALUE + rb"(?:\x86|" + _VALUE + rb"\x87))\x94"
_FRAMED: Final = rb"\x80\x05(?:\x95........)?"
_ALIKE: Final = b"".join(b"(?:" + 8 * number + b")*+" for number in (b"K.", b"M..", b"J....", b"G........"))
"""Eight numbers of one type at once, in 0.4 of the time."""
_LIST: Final = rb"\]\x94(?:\((?:" + _ALIKE + _VALUE + b"*+|(?:" + _ROW + b")++)e)*+(?:(?:" + _ROW + b"|" + _VALUE + b")a)?+"
_PART: Final = b"(?:" + _LIST + b"|" + _ROW + b"|" + _VALUE + b")"
_COUNT: Final = b"(?:" + _NUMBER + b")(?:" + _NUMBER + rb")\x86\x94"
_CHANGES: Final = b"(?:" + _COUNT + rb")(?:\x85|(?:" + _COUNT + rb")(?:\x86|(?:" + _COUNT + rb")\x87))\x94"

_MEMOIZE, _MARK, _EMPTY_TUPLE, _GLOBAL, _STOP = (
    name[0] for name in (pickle.MEMOIZE, pickle.MARK, pickle.EMPTY_TUPLE, pickle.STACK_GLOBAL, pickle.STOP)
)


@attrs.define(eq=False)
class _Compound:
    """A container, or what was made by a call; ``open`` while it can be filled, since nothing else refers to it."""

    depth: int
    size: int
    open: bool = False


_Entry: TypeAlias = _Compound | None  # None is a value without parts
_CALLABLE: Final = _Compound(0, 0)
_FLAT: Final = [_Compound(1, 1 + count) for count in range(4)]
"""Tuples of values without parts."""


@functools.cache  # compiled when first used: all of them take 170 ms, more than the rest of ``import timely``
def _run() -> re.Pattern[bytes]:
    """Return what finds values, or tuples of one to three, from a mark to what takes all since the mark.

    That takes a sixth of the time of one by one.
    """
    return re.compile(b"(?:(?:" + _VALUE + b")++|((?:" + _ROW + rb")++))(?=[etu\x90\x91])", re.DOTALL)


@functools.cache
def _memoized() -> re.Pattern[bytes]:
    """Return what finds what a run puts into the memo: a tuple, or a text; nothing at its end."""
    return re.compile(b"(?:" + _NUMBER + b"|" + _TEXT + rb")*+([\x85\x86\x87]?\x94|)", re.DOTALL)


@functools.cache
def _flat_pickle() -> re.Pattern[bytes]:
    """Return what matches a tuple of two or three: a value, then values, tuples and lists of these.

    Counts of up to three times, which are numbers, may follow a value, or be the fourth.

    Such a pickle refers to nothing twice and calls nothing, so that it takes no more than its bytes.
    """
    last = _PART + rb"(?:\x86|" + _PART + rb"(?(1)" + _CHANGES + rb"t|\x87))"
    return re.compile(_FRAMED + rb"(\()?+" + _VALUE + b"(?:" + _CHANGES + rb"\x86|" + last + rb")\x94\.", re.DOTALL)


def is_flat(data: bytes | bytearray | memoryview) -> bool:
    """Return whether a pickle is a short tuple of values and lists of values, as most events are, and so harmless to load."""
    return _flat_pickle().fullmatch(data) is not None


def verify(data: bytes) -> None:
    """Raise ``pickle.UnpicklingError`` unless a pickle is harmless to load with a ``find_class`` that is.

    >>> verify(pickle.dumps([{"a": (1, 2.5)}], 5))
    >>> verify(b")" + 10**6 * pickle.TUPLE1 + b".")
    Traceback (most recent call last):
    _pickle.UnpicklingError: it nests containers more than 100 deep
    """
    most = SHARING * len(data) + _FREE
    try:
        if _count(data, exact=False) > most and _count(data, exact=True) > most:
            raise pickle.UnpicklingError(f"it refers to its own parts so often that it has more than {most} values in all")
    except IndexError:
        raise pickle.UnpicklingError("it breaks off, or takes what is not there") from None


def _add(parts: list[_Entry], into: _Compound) -> _Compound:
    into.size += len(parts)
    if parts.count(None) < len(parts):
        for part in parts:
            if part is not None:
                if part is _CALLABLE:
                    raise pickle.UnpicklingError("it holds a class or a function as a value, which is not plain data")
                into.size += part.size
                if part.depth >= into.depth:
                    into.depth = part.depth + 1
        if into.depth > DEEPEST:
            raise pickle.UnpicklingError(f"it nests containers more than {DEEPEST} deep")
    return into


def _count(data: bytes, *, exact: bool) -> int:
    """Return the number of values, each counted as often as it is reached; raise for what is harmful.

    Unless ``exact``, a run of numbers counts as a value for each of its bytes, which is too many.
    """
    stack: list[_Entry] = []
    marks: list[int] = []
    memo: list[_Entry] = []
    skipped: list[tuple[int, int, int]] = []  # runs that are not in the memo yet: the place in it, and where they are
    at = 0
    while True:
        code = data[at]
        at += 1
        if code == _MEMOIZE:
            memo.append(stack[-1])
        elif (width := _WIDTH[code]) >= 0:
            stack.append(None)
            at += width
        elif count := _TUPLE[code]:
            parts = stack[-count:]
            del stack[-count:]
            stack.append(_FLAT[count] if parts.count(None) == count else _add(parts, _Compound(1, 1, False)))
        elif width := _GET_WIDTH[code]:
            while skipped:
                place, start, end = skipped.pop()
                memo[place:place] = [
                    None if each == pickle.MEMOIZE else _FLAT[3] for each in _memoized().findall(data, start, end) if each
                ]
            entry = memo[data[at] if width == 1 else int.from_bytes(data[at : at + width], "little")]
            if entry is not None:
                entry.open = False
            stack.append(entry)
            at += width
        elif width := _SIZE_WIDTH[code]:
            at += 1 + data[at] if width == 1 else width + int.from_bytes(data[at : at + width], "little")
            stack.append(None)
        elif code == _MARK:
            marks.append(len(stack))
            if not exact and (run := _run().match(data, at)):
                end = run.end()
                stack.append(_Compound(run.lastindex or 0, end - at, False))
                skipped.append((len(memo), at, end))
                at = end
        elif code in _TO_MARK:
            stack.append(_add(_popped(stack, marks.pop()), _Compound(1, 1, False)))
        elif code in _EMPTY:
            stack.append(_Compound(1, 1, True))
        elif code == _EMPTY_TUPLE:
            stack.append(_FLAT[0])
        elif count := _FILL[code]:
            _fill(stack, len(stack) - count)
        elif code in _FILL_TO_MARK:
            _fill(stack, marks.pop())
        elif code == _GLOBAL:
            _popped(stack, len(stack) - 2)
            stack.append(_CALLABLE)
        elif code in _CALL:
            callee, arguments = _popped(stack, len(stack) - 2)
            if callee is not _CALLABLE:
                raise pickle.UnpicklingError("it calls what it has made itself, which is not plain data")
            stack.append(_add([arguments], _Compound(1, 1, False)))
        elif count := _SKIP[code]:
            at += count
        elif code == _STOP:
            break
        else:
            raise pickle.UnpicklingError(f"it has the opcode {bytes([code])!r}, which plain data does not need")
    if at != len(data) or len(stack) != 1 or marks:
        raise pickle.UnpicklingError("it does not end where it should")
    return _add(stack, _Compound(0, 0, False)).size


def _popped(stack: list[_Entry], start: int) -> list[_Entry]:
    if start < 0:
        raise IndexError
    parts = stack[start:]
    del stack[start:]
    return parts


def _fill(stack: list[_Entry], start: int) -> None:
    parts = _popped(stack, start)
    into = stack[-1]
    if into is None or not into.open:
        raise pickle.UnpicklingError("it changes what its other parts refer to, as a list does that holds itself")
    _add(parts, into)
