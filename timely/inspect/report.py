"""``Reporter``: what a live page is told of one worker, as plain data of bounded size, whether the worker runs here or elsewhere.

It keeps a tally as the worker goes, and reads all the rest when a report is asked for, on whatever thread. A worker in another
process, or of Spark, has a thread that tells its reports to whoever shows them (``reporting``). The invariant: no worker waits
for that, it takes a tenth of the time at most, and no record of a dataflow is in a report, only counts and times. A caller may
assume that a report goes through JSON unchanged.
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

from timely.dataflow import Operator, ScopeBuilder
from timely.inspect.census import number_of
from timely.inspect.event_log import EventLog
from timely.inspect.events import Ended, Event, OperatorBuilt
from timely.inspect.explain import explain
from timely.inspect.snapshot import OMITTED, Snapshot, Wire, snapshot
from timely.inspect.tally import OperatorTally, Tally
from timely.monitor.memory import resident_memory
from timely.worker import Worker
from timely.worker.internals import has

Tell: TypeAlias = Callable[[dict[str, Any]], object]
"""Takes a report to whoever shows it; called on a thread of its own."""

DRAWN: Final = 400
"""Operators of a dataflow of which everything is told; of a larger one, what those that took the longest have done."""

EVERY: Final = 0.5
"""Seconds between two reports of a worker, at least."""

_SHARE: Final = 10
"""A report that takes so long is followed by a pause of so many times that."""

_STILL: Final = 5.0
"""Seconds without any movement after which a report says what is stuck."""

_REMEMBERED: Final = 4
"""Dataflows that are over of which is told, at most."""

_FLOWS: Final = 16
"""Dataflows of which is told, at most: the newest."""

_TRIES: Final = 20
_TIMES: Final = 8
_CHARACTERS: Final = 80
_WORDS: Final = 4_000

_LOG: Final = logging.getLogger(__name__)
_REPORTERS: Final = itertools.count()


class _Flow:
    """A dataflow of the worker: its scope while it goes on, and what it looked like and had done when it was over."""

    def __init__(self, scope: ScopeBuilder[Any]) -> None:
        self.path = scope.path
        self.number = number_of(scope)
        self.scope: ScopeBuilder[Any] | None = scope
        self.shape: Snapshot | None = None
        self.done: Mapping[str, list[float]] = {}

    def look(self) -> Snapshot:
        """Return what it looks like: again, where something was changed in the middle. RuntimeError where that goes on."""
        for _ in range(_TRIES):
            scope = self.scope
            if scope is None and self.shape is not None:
                return self.shape
            with contextlib.suppress(RuntimeError):
                return snapshot(scope)  # type: ignore[arg-type]
        raise RuntimeError(f"dataflow {self.path} changes too fast to be looked at")

    def end(self, done: Mapping[str, list[float]]) -> None:
        """Keep what it looks like and has done, and let go of it. On the worker's thread."""
        if self.scope is not None:
            self.shape, self.done, self.scope = snapshot(self.scope), done, None


class Reporter:
    """Reports on one worker: the dataflows that are built on it from now on. Made on the worker's thread.

    ``draws`` says whether a report has what the dataflows look like, which one worker of a run need tell.

    >>> import timely
    >>> from timely.inspect.report import Reporter
    >>> worker = timely.Worker()
    >>> reporter = Reporter(worker)
    >>> with worker.dataflow(name="df") as scope:
    ...     numbers, stream = scope.new_input()
    ...     _ = stream.map(str).probe()
    >>> numbers.send(1)
    >>> _ = worker.step()
    >>> [dataflow] = reporter.report()["dataflows"]
    >>> dataflow["path"], dataflow["over"], dataflow["done"]["/df/map#1"][2:]
    ('/df', False, [1, 1])
    """

    def __init__(self, worker: Worker, *, draws: bool = True, on_end: Callable[[], object] = lambda: None) -> None:
        self.worker = worker
        log = EventLog(worker)
        self.tally = Tally.of(log)
        log.subscribe(self._take)
        self._draws = draws
        self._on_end = on_end
        self._flows: dict[int, _Flow] = {}
        self._closed = self._has_logged = False
        self._seen: object = None
        self._moved = monotonic()
        self._words: dict[int, tuple[float, str]] = {}
        self._number = next(_REPORTERS)
        self._reports = itertools.count()

    def _take(self, event: Event) -> None:
        """Take in that a dataflow was built, or is over. On the worker's thread."""
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
        """Keep what a dataflow has come to; the tally is kept of others only, which may have the same name."""
        flow.end(self._done(flow.path))
        if alone:
            for path in self._paths(flow.path):
                del self.tally.operators[path]

    def _paths(self, dataflow: str) -> list[str]:
        return [path for path in list(self.tally.operators) if path.startswith(f"{dataflow}/")]

    def _done(self, dataflow: str) -> dict[str, list[float]]:
        """Return what the operators of a dataflow have done, those that took the longest first."""
        tallies = ((path, self.tally.operators.get(path)) for path in self._paths(dataflow))
        done = [(path, _numbers(tally)) for path, tally in tallies if tally is not None]
        return dict(sorted(done, key=lambda each: -each[1][1])[:DRAWN])

    @property
    def over(self) -> bool:
        """Whether all that was built is over, or the worker is."""
        flows = list(self._flows.values())
        return self._closed or (bool(flows) and not any(self._is_on(flow.scope) for flow in flows))

    def _is_on(self, scope: ScopeBuilder[Any] | None) -> bool:
        with contextlib.suppress(RuntimeError):  # others come and go meanwhile
            return scope is not None and has(self.worker, scope)
        return True

    def close(self) -> None:
        """Say that nothing more comes."""
        self._closed = True

    def report(self) -> dict[str, Any]:
        """Return what there is to tell now; ``number`` is higher than in those that were begun before it.

        RuntimeError where the worker changes everything again and again meanwhile.
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
            "told": self.tally.told,
            "heard": self.tally.heard,
            "still": monotonic() - self._moved,
            "running": [path for scope in scopes if scope is not None for path in _running(scope)],
            "over": self.over,
            "dataflows": [self._dataflow(*each) for each in zip(flows, scopes, shapes, strict=True)],
        }

    def _dataflow(self, flow: _Flow, scope: ScopeBuilder[Any] | None, shape: Snapshot) -> dict[str, Any]:
        return {
            "number": flow.number,
            "path": flow.path,
            "over": not self._is_on(scope),
            "stuck": self._stuck(flow, scope),
            "shape": plain(shape) if self._draws and len(shape.operators()) <= DRAWN else None,
            "done": flow.done if flow.scope is None else self._done(flow.path),
        }

    def _stuck(self, flow: _Flow, scope: ScopeBuilder[Any] | None) -> str | None:
        """Return who keeps a dataflow where it is, if nothing has moved for long; asked again now and then."""
        now = monotonic()
        if scope is None or not self._is_on(scope) or now - self._moved < _STILL:
            return None
        at, words = self._words.get(flow.number, (0.0, ""))
        if not words or now - at >= _STILL:
            running = _running(scope)
            words = f"operator {' in '.join(running)} is running, and has not returned" if running else ""
            words = words or str(explain(self.worker, scope))[:_WORDS]
            self._words[flow.number] = now, words
        return words

    def tell(self, tell: Tell) -> None:
        """Tell one report. What keeps that from being done is logged, once; the run goes on."""
        try:
            tell(self.report())
        except RuntimeError:  # too busy to be looked at
            return
        except Exception:
            if not self._has_logged:
                self._has_logged = True
                _LOG.exception("what worker %d does could not be told to the live page", self.worker.index)


def keep_telling(of: Callable[[], Reporter | None], tell: Tell, over: threading.Event, every: float = EVERY) -> None:
    """Tell a report now and then, until ``over`` is set, or ``of()`` has nobody any more; what a thread of its own does."""
    pause = 0.0
    while not over.wait(pause):
        reporter = of()
        if reporter is None:
            return
        begun = monotonic()
        reporter.tell(tell)
        pause = max(every, _SHARE * (monotonic() - begun))
        del reporter  # nobody waits for a report of a worker that is gone


def tell_of(worker: Worker, tell: Tell) -> None:
    """Have what a worker does told to ``tell`` for as long as there is the worker, and whenever a dataflow of it is over."""
    reporter = Reporter(worker, on_end=lambda: reporter.tell(tell))
    _begin(worker, weakref.ref(reporter), tell, threading.Event())


def _begin(worker: Worker, of: Callable[[], Reporter | None], tell: Tell, over: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=keep_telling, args=(of, tell, over), name=f"timely live {worker.index}", daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def reporting(worker: Worker, tell: Tell) -> Iterator[None]:
    """Have what a worker does told to ``tell`` while the ``with`` block lasts, and at its end; begun before a dataflow is built.

    >>> import timely
    >>> from timely.inspect.report import reporting
    >>> told = []
    >>> with timely.Worker() as worker, reporting(worker, told.append):
    ...     with worker.dataflow(name="df") as scope:
    ...         _ = scope.to_stream(range(5)).map(str).probe()
    ...     worker.run()
    >>> told[-1]["over"], told[-1]["dataflows"][0]["done"]["/df/map#1"][2:]
    (True, [5, 5])
    """
    reporter, over = Reporter(worker, draws=worker.index == 0), threading.Event()
    thread = _begin(worker, lambda: reporter, tell, over)
    try:
        yield
    finally:
        over.set()
        thread.join()
        reporter.close()
        reporter.tell(tell)


def _running(scope: ScopeBuilder[Any]) -> list[str]:
    """Return the operators that are running just now: more than one where one runs another in its middle."""
    children = [child.scope for nested in scope.scopes for child in nested.children]
    return [child.path for child in children if isinstance(child, Operator) and child.running]


def _numbers(tally: OperatorTally) -> list[float]:
    return [tally.runs, round(tally.seconds, 6), tally.read, tally.sent]


# -- shapes as plain data ------------------------------------------------------------------------------------------------


def plain(shape: Snapshot) -> dict[str, Any]:
    """Return a snapshot as JSON has it, with so many times and so much of each as one can read.

    >>> import timely
    >>> from timely.inspect import snapshot
    >>> with timely.Worker().dataflow(name="df") as scope:
    ...     _ = scope.to_stream([1]).map(str)
    >>> shaped(plain(snapshot(scope))) == snapshot(scope)
    True
    """
    found = attrs.asdict(shape, recurse=False)
    found["frontiers"] = [None if times is None else _few(times) for times in shape.frontiers]
    for name in ("held", "waiting"):
        first, rest = found[name][:_TIMES], found[name][_TIMES:]
        found[name] = [[_cut(time), count] for time, count in first]
        found[name] += [[OMITTED, sum(count for _, count in rest)]] if rest else []
    found["children"] = [plain(child) for child in shape.children]
    found["wires"] = [[*wire.source, *wire.target, wire.exchanged] for wire in shape.wires]
    return found


def shaped(told: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot that ``plain`` has made plain data of. TypeError, KeyError or ValueError for anything else."""
    found = dict(told)
    found["frontiers"] = tuple(None if times is None else tuple(times) for times in told["frontiers"])
    for name in ("held", "waiting"):
        found[name] = tuple((time, count) for time, count in told[name])
    found["children"] = tuple(shaped(child) for child in told["children"])
    found["wires"] = tuple(_wire(*wire) for wire in told["wires"])
    return Snapshot(**found)


def _wire(node: int, port: int, to_node: int, to_port: int, exchanged: bool) -> Wire:
    return Wire((node, port), (to_node, to_port), exchanged)


def _few(times: Sequence[str]) -> list[str]:
    return [*(_cut(time) for time in times[:_TIMES]), *([OMITTED] if len(times) > _TIMES else [])]


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
