"""``Explanation``: why a frontier is where it is, as data, and in words when it is printed. It refers to nothing that runs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs

from timely.dataflow import InputPort, ScopeBuilder, Stream
from timely.dataflow.origin import Origin
from timely.errors import brief
from timely.operators import ProbeHandle
from timely.progress import PathSummary

Place: TypeAlias = Stream[Any, Any] | ProbeHandle[Any] | InputPort[Any, Any] | ScopeBuilder[Any]
"""What may be explained: the frontier at a stream, a probe or an operator's input; or the end of a dataflow."""

Port: TypeAlias = tuple[str, int, bool]
"""The path of an operator, the number of a port, and whether that is an input (where records wait)."""

Kind: TypeAlias = Literal["input", "capability", "message"]
"""What holds a frontier back: an open input, a capability of another operator, or unread records."""

_SHOWN: Final = 10
_TIMES: Final = 3


@attrs.frozen
class Position:
    """Where a worker's thread is: the running operators and the lines of the program, the innermost last."""

    worker: int
    operators: tuple[str, ...]
    lines: tuple[str, ...]

    def __str__(self) -> str:
        at = f" {self.lines[0]}" if len(self.lines) == 1 else "".join(f"\n  {line}" for line in self.lines)
        if self.operators:
            return f"worker {self.worker} runs operator {', in it '.join(self.operators)}, which has not returned; it is at{at}"
        return f"worker {self.worker} is at{at}" if self.lines else f"worker {self.worker} has ended its program"


@attrs.frozen
class Leg:
    """The part of a path in one scope: its operators, its summary, and the time at its end, in the scope's own time."""

    scope: str
    operators: tuple[str, ...]
    summary: PathSummary[Any]
    arrives_at: Any


@attrs.frozen
class Reason:
    """One thing that holds a frontier back.

    ``operator``, built at ``origin``, holds ``count`` capabilities of the output ``port``, or has so many unread records at the
    input ``port``, at ``time``, in all workers together. ``by_worker`` splits the count, as far as that is known. ``way`` leads
    to the place in question, a leg for each scope, and arrives as ``arrives_at``.
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
        """The port."""
        return self.path, self.port, self.kind == "message"

    def __str__(self) -> str:
        return _in_words([self])


@attrs.frozen
class Unfinished:
    """A custom scope that reported work left when it was last pulled: it keeps its dataflow alive.

    ``patient`` ones are not polled.

    >>> print(Unfinished("Feed", "/df/Feed#0", None))
    scope 'Feed' (/df/Feed#0) has work left: it returned True when it was last pulled; return False once nothing is unreported
    """

    scope: str
    path: str
    origin: Origin | None
    patient: bool = False

    def __str__(self) -> str:
        built = "" if self.origin is None else f", built at {self.origin}"
        wakes = ", and call activate() until then, since it is patient" if self.patient else ""
        return (
            f"scope {self.scope!r} ({self.path}{built}) has work left: it returned True when it was last pulled; return False"
            f" once nothing is unreported{wakes}"
        )


@attrs.frozen
class Description:
    """How an operator describes its state on one worker (``OperatorInfo.describe``); ``records`` if the text has any.

    >>> str(Description("/df/count#1", 0, "2 words"))
    '/df/count#1 on worker 0: 2 words'
    """

    path: str
    worker: int
    text: str
    records: bool = False

    def __str__(self) -> str:
        return f"{self.path} on worker {self.worker}: {self.text}"


@attrs.frozen(repr=False)
class Explanation:
    """Why the frontier at ``place`` is ``frontier``, as one worker sees it; for the end of a dataflow ``frontier`` is empty.

    ``positions``: where the workers involved are, without the thread that asks. ``missing``: workers that have not built the
    dataflow, or have dropped it. ``unreachable``: those that could not be asked, and why. ``unfinished``: custom scopes that
    keep the dataflow from its end on this worker. ``dropped``: the dataflow, or one that a probe is attached to, was dropped
    here before it was complete. ``described``: the states of the operators of the reasons, and of those by which records go
    round the loops that they are in.
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
    described: tuple[Description, ...] = ()

    def __repr__(self) -> str:
        return str(self)  # what a prompt or a notebook shows of it

    def without_records(self) -> Explanation:
        """Return the explanation without texts that have records of the program."""
        return attrs.evolve(self, described=tuple(each for each in self.described if not each.records))

    @property
    def waits_for_inputs(self) -> bool:
        """Whether all reasons are open inputs or patient scopes, and no operator is running."""
        waits = all(reason.kind == "input" for reason in self.reasons) and all(scope.patient for scope in self.unfinished)
        return waits and not any(where.operators for where in self.positions)

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
        lines += [_item(_in_words(group)) for group in list(groups.values())[:_SHOWN]]
        if len(groups) > _SHOWN:
            lines.append(_item(f"and {len(groups) - _SHOWN} more, see .reasons"))
        lines += [_item(str(text)) for text in self.described[:_SHOWN]]
        if len(self.described) > _SHOWN:
            lines.append(_item(f"and {len(self.described) - _SHOWN} more, see .described"))
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


def _in_words(reasons: Sequence[Reason]) -> str:
    """Return reasons of one kind, operator and path, in words."""
    first = reasons[0]
    built = "" if first.origin is None else f", built at {first.origin}"
    lines = [f"{first.operator!r} ({first.path}{built}) {_deed(reasons)}", f"  {_where(reasons)}"]
    passed = [name for leg in first.way for name in leg.operators]
    if len(passed) > 1:
        arrives = "" if first.arrives_at == first.time else f", and gets there as {brief(first.arrives_at)}"
        lines.append(f"  it goes {' -> '.join(passed)}{arrives}")
    return "\n".join(lines)


def _deed(reasons: Sequence[Reason]) -> str:
    """Return what the operator holds, and what to do."""
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
    """Return the counts of each worker, in words."""
    counts: Counter[int] = Counter()
    for reason in reasons:
        counts.update(reason.by_worker)
    parts = [f"{count} on worker {worker}" for worker, count in sorted(counts.items())]
    unseen = sum(reason.count for reason in reasons) - counts.total()
    if unseen > 0:
        parts.append(f"{unseen} on no worker that could be asked: in flight, or released and not reported yet")
    return ", ".join(parts)


def _several(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _names(workers: Sequence[int]) -> str:
    named = ", ".join(map(str, workers[:_SHOWN])) + (f" and {len(workers) - _SHOWN} more" if len(workers) > _SHOWN else "")
    return f"worker {named}" if len(workers) == 1 else f"workers {named}"
