"""``Footprint``: about how many bytes and records objects hold, by time, without copies and in bounded time.

Of large collections a sample is looked at. The invariant: measuring changes nothing, and never fails.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

from timely.memory.budget import MemoryBudget

_WHOLE: Final = 1024
"""Items of a collection that are all looked at, unless it is itself in a sample, or much was looked at before."""

_SAMPLE: Final = 128
_FEW: Final = 8
_DEEP: Final = 12
_MANY: Final = 5_000
"""Objects from which on few items of each collection are looked at; each takes about a microsecond."""

_MOST: Final = 200_000
"""Objects that are looked at in all: it ends for every graph of objects."""

_PLAIN: Final = frozenset({str, bytes, int, float, complex, bool, type(None)})
_COLLECTIONS: Final = (list, dict, set, frozenset, deque)
_SHARED: Final = (type, ModuleType, CodeType, FrameType, BuiltinFunctionType, weakref.ref, MemoryBudget)
"""What no operator holds."""


class Footprint:
    """Adds up what objects hold: ``size`` in bytes, ``records``, and ``times`` with both of each time.

    Records are the items of lists, sets, dictionaries, arrays and Arrow batches, not these themselves. A dictionary whose keys
    are all in ``times`` holds by time. Objects are counted once. Those whose type is in a module that begins with one of
    ``outside`` are not looked into.

    >>> footprint = Footprint()
    >>> footprint.add({3: [bytes(1000)], 5: [bytes(9000), bytes(9000)]}, times=[3, 4, 5])
    >>> int(footprint.records), max(footprint.times, key=footprint.times.get), 19_000 < footprint.size < 20_000
    (3, 5, True)
    """

    def __init__(self, outside: tuple[str, ...] = ()) -> None:
        self.size = 0.0
        self.records = 0.0
        self.times: dict[Any, tuple[float, float]] = {}
        self._outside = outside
        self._kinds: dict[type, bool] = {}
        self._seen: set[int] = set()
        self._looks = 0

    def next(self) -> Footprint:
        """Return another one, at nothing, that does not count what was counted here."""
        other = Footprint(self._outside)
        other._kinds, other._seen = self._kinds, self._seen
        return other

    def add(self, held: Any, times: Collection[Any] = (), time: Any = None) -> None:
        """Add an object with all that it refers to; what it does not hold by time is at ``time``, or at none."""
        stack: list[tuple[Any, float, Any, int]] = [(held, 1.0, time, 0)]
        while stack and self._looks < _MOST:
            self._looks += 1
            object_, scale, at, depth = stack.pop()
            kind = type(object_)
            if scale != 1.0 or (depth and kind in _PLAIN):  # what several refer to is counted in parts
                scale /= max(1, sys.getrefcount(object_) - 2)
            if kind in _PLAIN:
                self._count(scale * sys.getsizeof(object_), 0.0, at)
                continue
            if id(object_) in self._seen or self._is_shared(kind):
                continue
            if scale == 1.0:
                self._seen.add(id(object_))
            size = _bytes_of_rows(object_)
            if size is not None:
                self._count(scale * size, scale * _length(object_), at)
                if getattr(getattr(object_, "dtype", None), "hasobject", False):
                    stack += self._sample(object_.flat, object_.size, scale, at, depth)
                continue
            self._count(scale * _shallow(object_), 0.0, at)
            if depth >= _DEEP:
                continue
            if kind is FunctionType:  # not its globals
                cells = [cell.cell_contents for cell in object_.__closure__ or () if _is_full(cell)]
                parts = [*cells, object_.__defaults__, object_.__kwdefaults__]
                stack += [(part, scale, at, depth + 1) for part in parts if part is not None]
            elif isinstance(object_, dict):
                if times and scale == 1.0 and 0 < len(object_) <= len(times) and _all_in(object_, times):
                    stack += [(value, scale, key, depth + 1) for key, value in _some(dict.items(object_), len(object_), 1)]
                else:
                    items = self._sample(dict.items(object_), len(object_), scale, at, depth)
                    self._count(0.0, sum(each for pair, each, _, _ in items if self._is_record(pair[1])), at)
                    stack += [(part, each, at, below) for pair, each, _, below in items for part in pair]
                    del items
            elif isinstance(object_, (list, tuple, set, frozenset, deque)):
                sampled = self._sample(object_, len(object_), scale, at, depth)
                if not isinstance(object_, tuple):
                    self._count(0.0, sum(each for item, each, _, _ in sampled if self._is_record(item)), at)
                stack += sampled
                del sampled
            else:
                stack += [(part, scale, at, depth + 1) for part in gc.get_referents(object_)]

    def _count(self, size: float, records: float, time: Any) -> None:
        self.size += size
        self.records += records
        if time is not None:
            sizes, counts = self.times.get(time, (0.0, 0.0))
            self.times[time] = sizes + size, counts + records

    def _sample(self, items: Iterable[Any], many: int, scale: float, at: Any, depth: int) -> list[tuple[Any, float, Any, int]]:
        """Return some of so many items, each with how many it stands for."""
        few = scale != 1.0 or self._looks > _MANY
        most = _FEW if few else many if many <= _WHOLE else _SAMPLE
        step = max(1, many // max(most, 1))
        some = _some(items, many, step)
        each = scale * many / len(some) if some else 0.0
        return [(item, each, at, depth + 1) for item in some]

    def _is_shared(self, kind: type) -> bool:
        shared = self._kinds.get(kind)
        if shared is None:
            module = getattr(kind, "__module__", "")
            ours = isinstance(module, str) and module.startswith(self._outside) if self._outside else False
            shared = self._kinds[kind] = ours or issubclass(kind, _SHARED)
        return shared

    def _is_record(self, item: Any) -> bool:
        return not isinstance(item, _COLLECTIONS) and not self._is_shared(type(item)) and _bytes_of_rows(item) is None


def _some(items: Iterable[Any], many: int, step: int) -> list[Any]:
    """Return every so-manieth item; fewer where another thread changes them meanwhile."""
    if isinstance(items, (list, tuple)):
        return list(items[::step])
    some: list[Any] = []
    try:
        some.extend(islice(items, 0, many, step))
    except RuntimeError:
        pass
    return some


def _all_in(keys: Iterable[Any], times: Collection[Any]) -> bool:
    try:
        return all(key in times for key in tuple(keys))
    except Exception:  # keys of the program may compare as they like
        return False


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _bytes_of_rows(item: Any) -> int | None:
    """Return the bytes of an array or of columns; ``None`` for what is neither."""
    if not hasattr(type(item), "nbytes"):
        return None
    try:
        size = item.nbytes
    except Exception:
        return None
    return size if isinstance(size, int) else None


def _length(item: Any) -> int:
    try:
        return len(item)
    except Exception:
        return 0


def _shallow(item: Any) -> int:
    try:
        return sys.getsizeof(item, 0)
    except Exception:
        return 0
