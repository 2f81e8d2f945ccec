"""``Reporter``: reports on one worker for the live page, as plain data of bounded size.

A tally grows as the worker runs; the rest is read when a report is due, on a thread beside the worker. No worker waits for it. A
report has counts and times, no records, and survives JSON unchanged.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final, TypeAlias

import attrs

from timely.dataflow import ScopeBuilder
from timely.inspect.capability_holders import number_of, operators_of
from timely.inspect.event_log import Ended, Event, EventLog, OperatorBuilt, Tally
from timely.inspect.explanation import explain
from timely.inspect.pictures import DRAWN
from timely.inspect.snapshots import OMITTED, Snapshot, Wire, snapshot
from timely.monitor.dataflow_position import lag
from timely.monitor.memory import resident_memory
from timely.worker import Worker
from timely.worker.internals import has

Send: TypeAlias = Callable[[dict[str, Any]], object]
"""Sends a report to the page or driver that shows it; called on a thread of its own."""

EVERY: Final = 0.5
"""Least seconds between two reports."""

_SHARE: Final = 10
"""The pause after a report is at least so many times as long as the report took."""

_STILL: Final = 5.0
"""Seconds without movement after which a report explains what is stuck."""

_REMEMBERED: Final = 4
"""Dataflows that are over and still reported, at most."""

_FLOWS: Final = 16
"""Dataflows that are reported, at most: the newest."""

_TRIES: Final = 20
_TIMES: Final = 8
_CHARACTERS: Final = 80
_WORDS: Final = 4_000

_LOG: Final = logging.getLogger(__name__)
_REPORTERS: Final = itertools.count()


class _Flow:
    """A dataflow: its scope while it runs, then its last snapshot and numbers."""

    def __init__(self, scope: ScopeBuilder[Any]) -> None:
        self.path = scope.path
        self.number = number_of(scope)
        self.scope: ScopeBuilder[Any] | None = scope
        self.shape: Snapshot | None = None
        self.done: Mapping[str, list[float]] = {}
        self.edges: Sequence[Sequence[str | int]] = ()

    def look(self) -> Snapshot:
        """Return a snapshot; tries again if it changes meanwhile, and raises RuntimeError if that goes on."""
        for _ in range(_TRIES):
            scope = self.scope
            if scope is None and self.shape is not None:
                return self.shape
            with contextlib.suppress(RuntimeError):
                return snapshot(scope)  # type: ignore[arg-type]
        raise RuntimeError(f"dataflow {self.path} changes too fast to be read")

    def end(self, done: Mapping[str, list[float]], edges: Sequence[Sequence[str | int]]) -> None:
        """Keep the last snapshot and numbers. On the worker's thread."""
        if self.scope is not None:
            self.shape, self.done, self.edges, self.scope = snapshot(self.scope), done, edges, None


class Reporter:
    """Reports on the dataflows that are built on a worker from now on. Created on the worker's thread.

    ``draws`` includes the shapes of the dataflows, which only one worker of a run needs to report.
    """

    def __init__(self, worker: Worker, *, draws: bool = True, on_end: Callable[[], object] = lambda: None) -> None:
        self.worker = worker
        log = EventLog(worker)
        self.tally = Tally.of(log)
        log.subscribe(self._receive)
        self._draws = draws
        self._on_end = on_end
        self._flows: dict[int, _Flow] = {}
        self._closed = self._has_logged = False
        self._seen: object = None
        self._moved = monotonic()
        self._words: dict[int, tuple[float, str]] = {}
        self._number = next(_REPORTERS)
        self._reports = itertools.count()

    def _receive(self, event: Event) -> None:
        """Follow which dataflows there are. On the worker's thread."""
        if isinstance(event, OperatorBuilt):
            scope = self.worker.scopes[-1]
            if number_of(scope) not in self._flows:
                self._flows[number_of(scope)] = _Flow(scope)
        elif isinstance(event, Ended):
            self.tally.ended.clear()
            named = [flow for flow in self._flows.values() if flow.path == event.path and flow.scope is not None]
            for flow in named:
                if not self._is_on(flow.scope):
                    self._end(flow, alone=len(named) == 1)
            for flow in [flow for flow in self._flows.values() if flow.scope is None][:-_REMEMBERED]:
                del self._flows[flow.number]
            self._on_end()

    def _end(self, flow: _Flow, *, alone: bool) -> None:
        """Keep the end of a dataflow; forget its tally, unless another dataflow has the same name."""
        flow.end(self._done(flow.path), self._edges(flow.path))
        if alone:
            for path in self._paths(flow.path):
                del self.tally.operators[path]
            for edge in self._edges_of(flow.path):
                del self.tally.edges[edge]

    def _paths(self, dataflow: str) -> list[str]:
        return [path for path in list(self.tally.operators) if path.startswith(f"{dataflow}/")]

    def _done(self, dataflow: str) -> dict[str, list[float]]:
        """Return the numbers of the operators of a dataflow, the slowest first."""
        tallies = ((path, self.tally.operators.get(path)) for path in self._paths(dataflow))
        done = [(path, [one.runs, round(one.seconds, 6), one.read, one.sent]) for path, one in tallies if one is not None]
        return dict(sorted(done, key=lambda each: -each[1][1])[:DRAWN])

    def _edges_of(self, dataflow: str) -> list[tuple[str, str, int]]:
        return [edge for edge in list(self.tally.edges) if edge[0].startswith(f"{dataflow}/")]

    def _edges(self, dataflow: str) -> list[Sequence[str | int]]:
        """Return ``[sender, receiver, port, records]`` of the edges of a dataflow."""
        return [(*edge, self.tally.edges.get(edge, 0)) for edge in self._edges_of(dataflow)[: 4 * DRAWN]]

    @property
    def over(self) -> bool:
        """Whether the worker, or everything built on it, is over."""
        flows = list(self._flows.values())
        return self._closed or (bool(flows) and not any(self._is_on(flow.scope) for flow in flows))

    def _is_on(self, scope: ScopeBuilder[Any] | None) -> bool:
        with contextlib.suppress(RuntimeError):  # dataflows come and go meanwhile
            return scope is not None and has(self.worker, scope)
        return True

    def close(self) -> None:
        """Mark the worker as over."""
        self._closed = True

    def report(self, *, draws: bool = True) -> dict[str, Any]:
        """Return a report; ``number`` grows from report to report. RuntimeError if the worker is too busy to be read.

        Without the shapes of the dataflows unless it ``draws``.
        """
        number = next(self._reports)
        worker, flows = self.worker, list(self._flows.values())[-_FLOWS:]
        scopes = [flow.scope for flow in flows]
        shapes = [flow.look() for flow in flows]
        counts = [(operator.held, operator.waiting) for shape in shapes for operator in shape.operators()]
        seen = counts, sum(tally.read + tally.sent for tally in list(self.tally.operators.values()))
        if seen != self._seen:
            self._seen, self._moved, self._words = seen, monotonic(), {}
        return {
            "reporter": self._number,
            "number": number,
            "worker": worker.index,
            "peers": worker.peers,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "memory": resident_memory(),
            "waited": self.tally.waited,
            "progress_sent": self.tally.progress_sent,
            "progress_received": self.tally.progress_received,
            "still": monotonic() - self._moved,
            "running": [path for scope in scopes if scope is not None for path in _running(scope)],
            "over": self.over,
            "dataflows": [self._dataflow(*each, draws=draws) for each in zip(flows, scopes, shapes, strict=True)],
        }

    def _dataflow(self, flow: _Flow, scope: ScopeBuilder[Any] | None, shape: Snapshot, *, draws: bool) -> dict[str, Any]:
        return {
            "number": flow.number,
            "path": flow.path,
            "over": not self._is_on(scope),
            "stuck": self._stuck(flow, scope),
            "shape": plain(drawn) if self._draws and draws and (drawn := shape.within(DRAWN)) else None,
            "lag": None if scope is None else _lag(scope),
            "unread": sum(count for operator in shape.operators() for _, count in operator.waiting),
            "edges": flow.edges if flow.scope is None else self._edges(flow.path),
            "done": flow.done if flow.scope is None else self._done(flow.path),
            "described": {
                each.path: [*map(_cut, each.described)]
                for each in [*filter(lambda each: each.described, shape.operators())][:DRAWN]
            },
        }

    def _stuck(self, flow: _Flow, scope: ScopeBuilder[Any] | None) -> str | None:
        """Return why a dataflow is stuck, if nothing has moved for long."""
        now = monotonic()
        if scope is None or not self._is_on(scope) or now - self._moved < _STILL:
            return None
        at, words = self._words.get(flow.number, (0.0, ""))
        if not words or now - at >= _STILL:
            running = _running(scope)
            words = f"operator {' in '.join(running)} is running, and has not returned" if running else ""
            words = words or str(explain(self.worker, scope).without_records())[:_WORDS]
            self._words[flow.number] = now, words
        return words

    def send_to(self, send: Send) -> None:
        """Send one report. The first failure is logged; the run goes on."""
        try:
            send(self.report())
        except RuntimeError:  # too busy to be read
            return
        except Exception:
            if not self._has_logged:
                self._has_logged = True
                _LOG.exception("the report of worker %d could not be sent to the live page", self.worker.index)


def keep_sending(of: Callable[[], Reporter | None], send: Send, over: threading.Event, every: float = EVERY) -> None:
    """Send reports until ``over`` is set, or ``of()`` returns ``None``; the body of a thread."""
    pause = 0.0
    while not over.wait(pause):
        reporter = of()
        if reporter is None:
            return
        begun = monotonic()
        reporter.send_to(send)
        pause = max(every, _SHARE * (monotonic() - begun))
        del reporter  # does not keep a worker that is gone


def report_always(worker: Worker, send: Send) -> None:
    """Send reports on a worker for as long as it lives, and whenever one of its dataflows ends."""
    reporter = Reporter(worker, on_end=lambda: reporter.send_to(send))
    _begin(worker, weakref.ref(reporter), send, threading.Event())


def _begin(worker: Worker, of: Callable[[], Reporter | None], send: Send, over: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=keep_sending, args=(of, send, over), name=f"timely live {worker.index}", daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def reporting(worker: Worker, send: Send) -> Iterator[None]:
    """Send reports on a worker during the ``with`` block, and at its end; enter it before a dataflow is built."""
    reporter, over = Reporter(worker, draws=worker.index == 0), threading.Event()
    thread = _begin(worker, lambda: reporter, send, over)
    try:
        yield
    finally:
        over.set()
        thread.join()
        reporter.close()
        reporter.send_to(send)


def _running(scope: ScopeBuilder[Any]) -> list[str]:
    """Return the operators that are running: more than one if one runs another."""
    return [operator.path for operator in operators_of(scope) if operator.running]


def _lag(scope: ScopeBuilder[Any]) -> int | None:
    with contextlib.suppress(RuntimeError):  # its times change meanwhile
        return lag(scope)
    return None


# -- shapes as plain data ------------------------------------------------------------------------------------------------


def plain(shape: Snapshot) -> dict[str, Any]:
    """Return a snapshot as JSON has it, with at most the first few times."""
    fields = attrs.asdict(shape, recurse=False)
    fields["frontiers"] = [None if times is None else _few(times) for times in shape.frontiers]
    for name in ("held", "waiting"):
        first, rest = fields[name][:_TIMES], fields[name][_TIMES:]
        fields[name] = [[_cut(time), count] for time, count in first]
        fields[name] += [[f"{OMITTED} {len(rest)} more", sum(count for _, count in rest)]] if rest else []
    fields["children"] = [plain(child) for child in shape.children]
    fields["wires"] = [[*wire.source, *wire.target, wire.exchanged] for wire in shape.wires]
    fields["described"] = [*map(_cut, shape.described)]
    return fields


def shaped(data: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot of ``plain`` data. TypeError, KeyError or ValueError for anything else."""
    fields = dict(data)
    fields["frontiers"] = tuple(None if times is None else tuple(times) for times in data["frontiers"])
    for name in ("held", "waiting"):
        fields[name] = tuple((time, count) for time, count in data[name])
    fields["children"] = tuple(shaped(child) for child in data["children"])
    fields["wires"] = tuple(Wire((node, port), (to, to_port), crosses) for node, port, to, to_port, crosses in data["wires"])
    fields["described"] = tuple(data["described"])
    return Snapshot(**fields)


def _few(times: Sequence[str]) -> list[str]:
    return [*(_cut(time) for time in times[:_TIMES]), *([f"{OMITTED} {len(times) - _TIMES} more"] if len(times) > _TIMES else [])]


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
