"""Naiad's own timestamps: an epoch, and one counter for each loop around a place, ``(e, ⟨c1, …, ck⟩)``.

A time is at or before another if its epoch is and its counters are, lexicographically (Naiad section 2.1). Unlike with nested
products, the next round of an outer loop is later than *every* round of the loop inside. Path summaries remove, increment and add
counters (section 2.3), and fit any depth; ``<=`` on them holds exactly if no time ends up later. So a whole nesting of loops fits
one flat graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from timely.errors import TimestampError

_pair = tuple.__new__  # no checks, for times that are valid because the time they come from is


class _Fields(NamedTuple):
    epoch: int
    counters: tuple[int, ...]


class LoopTime(_Fields):
    """The time of a place inside ``len(counters)`` nested loops: ``counters`` are their rounds, the outermost first.

    ``TimestampError`` unless all are whole numbers of at least 0. Source: Naiad section 2.1.

    >>> LoopTime(0, (1, 7)) <= LoopTime(0, (2, 0)), LoopTime(0, (2,)) <= LoopTime(1, (1,)), LoopTime.minimum()
    (True, False, LoopTime(0, ()))
    >>> LoopTime(0, (2, 5)).lub(LoopTime(1, (2,)))
    LoopTime(1, (2, 5))
    """

    __slots__ = ()

    def __new__(cls, epoch: int, counters: tuple[int, ...] = ()) -> LoopTime:
        if not _is_natural(epoch) or not isinstance(counters, tuple) or not all(map(_is_natural, counters)):
            raise TimestampError(f"LoopTime({epoch!r}, {counters!r}): the epoch and the counters are whole numbers of at least 0")
        time: LoopTime = _pair(cls, (epoch, counters))
        return time

    @classmethod
    def minimum(cls) -> LoopTime:
        """Return the first epoch, outside of all loops."""
        return _pair(cls, (0, ()))

    @classmethod
    def identity(cls) -> LoopSummary:
        """Return the summary that changes nothing, at any depth."""
        return LoopSummary()

    def sort_key(self) -> tuple[int, tuple[int, ...]]:
        """Return the epoch and the counters: a total order that extends the partial one."""
        return self[0], self[1]

    def lub(self, other: LoopTime, /) -> LoopTime:
        """Return the earliest time at or after both."""
        bound: LoopTime = _pair(LoopTime, (max(self[0], other[0]), max(self[1], other[1])))
        return bound

    def glb(self, other: LoopTime, /) -> LoopTime:
        """Return the latest time at or before both."""
        bound: LoopTime = _pair(LoopTime, (min(self[0], other[0]), min(self[1], other[1])))
        return bound

    def __le__(self, other: tuple[Any, ...], /) -> bool:
        return bool(self[0] <= other[0] and self[1] <= other[1])

    def __lt__(self, other: tuple[Any, ...], /) -> bool:
        return bool(self[0] <= other[0] and self[1] <= other[1]) and self != other

    def __ge__(self, other: tuple[Any, ...], /) -> bool:
        return bool(other[0] <= self[0] and other[1] <= self[1])

    def __gt__(self, other: tuple[Any, ...], /) -> bool:
        return bool(other[0] <= self[0] and other[1] <= self[1]) and self != other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self[0]}, {self[1]})"


class LoopSummary:
    """The path summary of :class:`LoopTime`: keep counters, increment the last one kept, append others.

    ``keep`` counters stay (None: all), ``increment`` is added to the last of these, ``append`` follows, and the epoch advances by
    ``epoch``. :meth:`ingress`, :meth:`egress` and :meth:`feedback` are Naiad's (section 2.1); composing them gives all others. A
    kept counter that is missing counts as 0. ``TimestampError`` for numbers below 0, or for counters to change without ``keep``.

    >>> body = LoopSummary.ingress(2).followed_by(LoopSummary.feedback(2))
    >>> body, body.results_in(LoopTime(5, (3,)))
    (LoopSummary(keep=1, append=(1,)), LoopTime(5, (3, 1)))
    >>> LoopSummary.feedback(2) < LoopSummary.feedback(1), LoopSummary.ingress(2) <= LoopSummary.egress(1)
    (True, False)
    """

    __slots__ = ("_append", "_epoch", "_increment", "_keep")

    def __init__(self, epoch: int = 0, keep: int | None = None, increment: int = 0, append: tuple[int, ...] = ()) -> None:
        if not all(map(_is_natural, (epoch, keep or 0, increment, *append))):
            raise TimestampError("what a LoopSummary keeps, adds and appends are whole numbers of at least 0")
        if (keep is None and append) or (not keep and increment):
            raise TimestampError("a LoopSummary increments the last counter that it keeps, and appends after those: say keep=")
        self._epoch = epoch
        self._keep = keep
        self._increment = increment
        self._append = append

    @classmethod
    def ingress(cls, depth: int) -> LoopSummary:
        """Return the summary of entering a loop, whose counter is the ``depth``-th (from 1) and starts at 0."""
        return cls(keep=_checked(depth) - 1, append=(0,))

    @classmethod
    def egress(cls, depth: int) -> LoopSummary:
        """Return the summary of leaving the loop whose counter is the ``depth``-th."""
        return cls(keep=_checked(depth) - 1)

    @classmethod
    def feedback(cls, depth: int) -> LoopSummary:
        """Return the summary of one more round of the loop whose counter is the ``depth``-th."""
        return cls(keep=_checked(depth), increment=1)

    def results_in(self, time: LoopTime, /) -> LoopTime | None:
        """Return the time at the end of the path; every time gets through."""
        epoch, counters = time
        keep = self._keep
        if keep is not None:
            counters = self._change(counters, keep)
        moved: LoopTime = _pair(LoopTime, (epoch + self._epoch, counters))
        return moved

    def _change(self, counters: tuple[int, ...], keep: int) -> tuple[int, ...]:
        prefix = counters[:keep]
        if len(prefix) < keep:
            prefix += (0,) * (keep - len(prefix))
        if self._increment:
            prefix = (*prefix[:-1], prefix[-1] + self._increment)
        return prefix + self._append

    def followed_by(self, other: LoopSummary, /) -> LoopSummary | None:
        """Return the summary that does what this and ``other`` do in turn."""
        epoch, keep, increment, append = self._epoch + other._epoch, other._keep, other._increment, other._append
        if keep is None:
            return LoopSummary(epoch, self._keep, self._increment, self._append)
        if self._keep is None or keep < self._keep:
            return LoopSummary(epoch, keep, increment, append)
        if keep == self._keep:
            return LoopSummary(epoch, keep, self._increment + increment, append)
        return LoopSummary(epoch, self._keep, self._increment, other._change(self._append, keep - self._keep))

    def __le__(self, other: LoopSummary, /) -> bool:
        if not isinstance(other, LoopSummary):
            return NotImplemented
        return self._epoch <= other._epoch and self._counters_stay_below(other)

    def _counters_stay_below(self, other: LoopSummary) -> bool:
        """Return whether no counters end up later by this summary than by the other.

        The first place where the two can differ decides: the last counter kept by the one that keeps fewer.
        """
        keep, most = self._keep, other._keep
        if most is None:
            return keep is None or (keep == 0 and not self._append)
        if keep is None or keep > most:
            return other._increment > 0
        if keep == most:
            return (self._increment, self._append) <= (other._increment, other._append)
        if self._increment:
            return False
        return self._append <= other._change((), most)[keep:]

    def __lt__(self, other: LoopSummary, /) -> bool:
        return self <= other and self != other

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, LoopSummary) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def _fields(self) -> tuple[int, int | None, int, tuple[int, ...]]:
        return self._epoch, self._keep, self._increment, self._append

    def __repr__(self) -> str:
        defaults = zip(("epoch", "keep", "increment", "append"), self._fields(), (0, None, 0, ()))
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value, default in defaults if value != default)})"


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _checked(depth: int) -> int:
    if not _is_natural(depth) or depth == 0:
        raise TimestampError(f"the depth of a loop is 1 for an outermost one, 2 for one in it, and so on, not {depth!r}")
    return depth
