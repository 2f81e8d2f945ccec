"""``Explanation``: why a frontier is where it is, as data, and in plain words when it is printed.

It holds no reference to anything that runs. The invariant: what the words say is what the data says, shortened: reasons of one
kind, of one operator and on one way are told together, and no more than the first few of many.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from timely.dataflow.origin import Origin
from timely.errors import brief
from timely.inspect.census import Port, Position
from timely.progress import PathSummary

Kind: TypeAlias = Literal["input", "capability", "message"]
"""What holds a frontier back: a source that may still send, a capability of another operator, or records that are not read."""

_SHOWN: Final = 10
_TIMES: Final = 3


@attrs.frozen
class Leg:
    """The part of a way that lies in one scope: the operators that it passes, the summary of the path through them, and when
    what sets out at the beginning gets to the end, in the scope's own time.
    """

    scope: str
    operators: tuple[str, ...]
    summary: PathSummary[Any]
    arrives_at: Any


@attrs.frozen
class Reason:
    """One thing that holds a frontier back.

    ``operator`` holds ``count`` capabilities of the output ``port``, or has not read as many records at the input ``port``, at
    ``time``, in all workers together; ``by_worker`` says how many of them each worker has, as far as that could be found out.
    ``way`` leads from there to the place that was asked about, a leg for each scope, and arrives as ``arrives_at``. ``origin`` is
    where it was built.
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
        """The port that it is at."""
        return self.path, self.port, self.kind == "message"

    def __str__(self) -> str:
        return _told([self])


@attrs.frozen
class Unfinished:
    """A scope of a user's own that has said, when it was last pulled, that it has work left: it keeps its dataflow alive.

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
    """Why the frontier at ``place`` is ``frontier``, as one worker sees it: its ``reasons``, in words when it is printed.

    That of the end of a dataflow is empty, and what still keeps it from being reached are the reasons. ``positions`` are where
    the programs are of workers that have part in it, or run an operator just now; the thread that asks is left out. ``missing``
    are workers that have not built the dataflow, or have dropped it; ``unheard`` those that could not be asked, with the reason.
    ``unfinished`` are scopes of a user's own that keep the dataflow from its end on this worker, whether they hold something
    or not; no frontier waits for that. ``dropped`` says whether the dataflow, or one of those that a probe is attached to, was
    dropped on this worker before it was complete: what it held is let go of, and is no reason any more.
    """

    place: str
    worker: int
    frontier: tuple[Any, ...]
    reasons: tuple[Reason, ...]
    positions: tuple[Position, ...] = ()
    missing: tuple[int, ...] = ()
    unheard: Mapping[int, str] = attrs.field(factory=dict)
    unfinished: tuple[Unfinished, ...] = ()
    dropped: bool = False

    @property
    def waits_for_inputs(self) -> bool:
        """Whether there is nothing but inputs that may still send, and no operator is running."""
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
        lines += [_item(_told(group)) for group in list(groups.values())[:_SHOWN]]
        if len(groups) > _SHOWN:
            lines.append(_item(f"and {len(groups) - _SHOWN} more, see .reasons"))
        lines += [_item(str(scope)) for scope in self.unfinished]
        lines += [str(position) for position in self.positions]
        if self.missing:
            lines.append(f"this dataflow is not built yet, or is dropped, on {_names(self.missing)}")
        for why in dict.fromkeys(self.unheard.values()):
            which = [worker for worker, reason in self.unheard.items() if reason == why]
            lines.append(f"nothing is known of {_names(which)}: {why}")
        return "\n".join(lines)


def _item(text: str) -> str:
    return textwrap.indent(text, "    ").replace("    ", "  - ", 1)


def _told(reasons: Sequence[Reason]) -> str:
    """Return reasons that are of one kind, of one operator and on one way, in words."""
    first = reasons[0]
    built = "" if first.origin is None else f", built at {first.origin}"
    lines = [f"{first.operator!r} ({first.path}{built}) {_deed(reasons)}", f"  {_where(reasons)}"]
    passed = [name for leg in first.way for name in leg.operators]
    if len(passed) > 1:
        arrives = "" if first.arrives_at == first.time else f", and gets there as {brief(first.arrives_at)}"
        lines.append(f"  it goes {' -> '.join(passed)}{arrives}")
    return "\n".join(lines)


def _deed(reasons: Sequence[Reason]) -> str:
    """Return what the operator does, or leaves undone, and what would end that."""
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
    """Return on which workers it is, in words."""
    found: Counter[int] = Counter()
    for reason in reasons:
        found.update(reason.by_worker)
    parts = [f"{count} on worker {worker}" for worker, count in sorted(found.items())]
    unseen = sum(reason.count for reason in reasons) - found.total()
    if unseen > 0:
        parts.append(f"{unseen} that no worker has who could be asked: on the way, or given up and not told yet")
    return ", ".join(parts)


def _several(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _names(workers: Sequence[int]) -> str:
    """Return workers by number, in words."""
    named = ", ".join(map(str, workers[:_SHOWN])) + (f" and {len(workers) - _SHOWN} more" if len(workers) > _SHOWN else "")
    return f"worker {named}" if len(workers) == 1 else f"workers {named}"
