"""``Explanation``: why a frontier is where it is, as data, and in words when printed.

The words say what the data say, shortened: reasons of one operator and one path are grouped, and only the first are shown.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from timely.dataflow.origin import Origin
from timely.errors import brief
from timely.inspect.capability_holders import Port, Position
from timely.progress import PathSummary

Kind: TypeAlias = Literal["input", "capability", "message"]
"""What holds a frontier back: a source that may still send, a capability of another operator, or unread records."""

_SHOWN: Final = 10
_TIMES: Final = 3


@attrs.frozen
class Leg:
    """The part of a path within one scope: its operators, its summary, and the time at its end, in the scope's own times."""

    scope: str
    operators: tuple[str, ...]
    summary: PathSummary[Any]
    arrives_at: Any


@attrs.frozen
class Reason:
    """One thing that holds a frontier back.

    ``operator``, built at ``origin``, holds ``count`` capabilities of its output ``port`` for ``time``, or has that many unread
    records at its input ``port``. ``by_worker`` has the counts of the workers that could be asked. ``way`` is the path to the
    explained place, a leg for each scope, where the time arrives as ``arrives_at``.
    """

    kind: Kind
    operator: str
    path: str
    port: int
    time: Any
    count: int
    by_worker: Mapping[int, int]
    origin: Origin | None
    way: tuple[Leg, ...]
    arrives_at: Any

    @property
    def place(self) -> Port:
        """The port, as :mod:`timely.inspect.capability_holders` names it."""
        return self.path, self.port, self.kind == "message"

    def __str__(self) -> str:
        return _words([self])


@attrs.frozen
class Unfinished:
    """A custom scope that reported unfinished work when it was last pulled, and so keeps its dataflow alive.

    >>> str(Unfinished("Feed", "/df/Feed#0", None))
    "scope 'Feed' (/df/Feed#0) has work left: it returned True when it was last pulled"
    """

    scope: str
    path: str
    origin: Origin | None

    def __str__(self) -> str:
        built = "" if self.origin is None else f", built at {self.origin}"
        return f"scope {self.scope!r} ({self.path}{built}) has work left: it returned True when it was last pulled"


@attrs.frozen
class Explanation:
    """Why the frontier at ``place`` is ``frontier``, as one worker sees it; for the end of a dataflow ``frontier`` is empty.

    ``positions`` are the threads of workers that hold a reason, or run an operator; the thread that asks is left out.
    ``missing`` are workers that have not built the dataflow or have dropped it, ``unreachable`` those that could not be asked,
    with the reason. ``unfinished`` are custom scopes that keep the dataflow alive; no frontier waits for them. ``dropped`` says
    whether the dataflow was dropped on this worker before it was complete.
    """

    place: str
    worker: int
    frontier: tuple[Any, ...]
    reasons: tuple[Reason, ...]
    positions: tuple[Position, ...] = ()
    missing: tuple[int, ...] = ()
    unreachable: Mapping[int, str] = attrs.field(factory=dict)
    unfinished: tuple[Unfinished, ...] = ()
    dropped: bool = False

    @property
    def waits_for_inputs(self) -> bool:
        """Whether only inputs hold the frontier back, and no operator is running."""
        return all(reason.kind == "input" for reason in self.reasons) and not any(where.operators for where in self.positions)

    def __str__(self) -> str:
        if self.dropped and not self.reasons:
            return f"{self.place} on worker {self.worker} is of a dataflow that was dropped: nothing comes any more"
        if not self.reasons and not self.unfinished:
            return f"{self.place} on worker {self.worker} is complete: nothing can come any more"
        at = f"at {', '.join(map(brief, self.frontier))}" if self.frontier else "not reached"
        lines = [f"{self.place} on worker {self.worker} is {at}, because"]
        groups: dict[Any, list[Reason]] = {}
        for reason in self.reasons:
            groups.setdefault((reason.place, tuple(leg.operators for leg in reason.way)), []).append(reason)
        lines += [_item(_words(group)) for group in list(groups.values())[:_SHOWN]]
        if len(groups) > _SHOWN:
            lines.append(_item(f"and {len(groups) - _SHOWN} more, see .reasons"))
        lines += [_item(str(scope)) for scope in self.unfinished]
        lines += [str(position) for position in self.positions]
        if self.missing:
            lines.append(f"this dataflow is not built yet, or is dropped, on {_names(self.missing)}")
        for why in dict.fromkeys(self.unreachable.values()):
            which = [worker for worker, reason in self.unreachable.items() if reason == why]
            lines.append(f"nothing is known of {_names(which)}: {why}")
        return "\n".join(lines)


def _item(text: str) -> str:
    return textwrap.indent(text, "    ").replace("    ", "  - ", 1)


def _words(reasons: Sequence[Reason]) -> str:
    """Return reasons of one operator and one path in words."""
    first = reasons[0]
    built = "" if first.origin is None else f", built at {first.origin}"
    lines = [f"{first.operator!r} ({first.path}{built}) {_deed(reasons)}", f"  {_where(reasons)}"]
    passed = [name for leg in first.way for name in leg.operators]
    if len(passed) > 1:
        arrives = "" if first.arrives_at == first.time else f", and gets there as {brief(first.arrives_at)}"
        lines.append(f"  it goes {' -> '.join(passed)}{arrives}")
    return "\n".join(lines)


def _deed(reasons: Sequence[Reason]) -> str:
    """Return what the operator holds or has not read, and what to do about it."""
    kind, count = reasons[0].kind, sum(reason.count for reason in reasons)
    times = ", ".join(brief(reason.time) for reason in reasons[:_TIMES])
    if len(reasons) > _TIMES:
        times += f" and {len(reasons) - _TIMES} more"
    if kind == "message":
        return f"has not read {_several(count, 'record', 'records')} at {times}"
    if kind == "input":
        return f"may still send at {times}: advance it past that, or close it"
    return f"holds {_several(count, 'capability', 'capabilities')} for {times}: downgrade or drop what is not needed"


def _where(reasons: Sequence[Reason]) -> str:
    """Return how much each worker has, in words."""
    found: Counter[int] = Counter()
    for reason in reasons:
        found.update(reason.by_worker)
    parts = [f"{count} on worker {worker}" for worker, count in sorted(found.items())]
    unseen = sum(reason.count for reason in reasons) - found.total()
    if unseen > 0:
        parts.append(f"{unseen} on no worker that could be asked: in flight, or released and not reported yet")
    return ", ".join(parts)


def _several(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _names(workers: Sequence[int]) -> str:
    named = ", ".join(map(str, workers[:_SHOWN])) + (f" and {len(workers) - _SHOWN} more" if len(workers) > _SHOWN else "")
    return f"worker {named}" if len(workers) == 1 else f"workers {named}"
