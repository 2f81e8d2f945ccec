"""``ReportAggregator``: the state of a live page, from the reports of all workers, wherever they run.

The workers of one run are shown together: each dataflow is drawn once, with the numbers of every worker. The state derives from
the newest report of each worker in the newest attempt, so a lost report does no harm. Any thread may call this.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Generic, TypeAlias, TypeGuard, TypeVar

import attrs

from timely.inspect.pictures import DRAWN, Picture
from timely.inspect.report import shaped
from timely.inspect.snapshots import ENTRY, EXIT, Snapshot, Wire

Report: TypeAlias = Mapping[str, Any]
"""A report of ``timely.inspect.report.Reporter``."""

M = TypeVar("M")

_REMEMBERED: Final = 8
"""Runs that are over and still shown, at most."""

_STUCK: Final = 3
"""Different explanations that are shown, at most."""

_AT_ONCE: Final = 32
"""Running runs of this machine that are shown, at most."""


@attrs.define(eq=False)
class _RunGroup(Generic[M]):
    """The workers of one run, by index."""

    peers: int
    members: dict[int, M] = attrs.field(factory=dict)


class RunGroups(Generic[M]):
    """Groups the workers of this machine into runs, by their number of peers and the order in which they come.

    Runs are forgotten as a whole, those that are over first.
    """

    def __init__(self, is_over: Callable[[M], bool]) -> None:
        self._is_over = is_over
        self._groups: list[_RunGroup[M]] = []

    def add(self, worker: int, peers: int, member: M) -> None:
        """Add a worker to the newest run that can have it."""
        for group in reversed(self._groups):
            if group.peers == peers and worker not in group.members:
                group.members[worker] = member
                return
        over = [group for group in self._groups if all(map(self._is_over, group.members.values()))]
        known = [group for group in self._groups if group not in over[:-_REMEMBERED]]
        self._groups = [*known, _RunGroup(peers, {worker: member})][-_REMEMBERED - _AT_ONCE :]

    def all(self) -> list[list[M]]:
        """Return the runs, oldest first, their workers by index."""
        return [[group.members[index] for index in sorted(group.members)] for group in self._groups]


@attrs.define(eq=False)
class _Received:
    """The newest report of a worker of another process, and when it came."""

    at: float
    report: Report


@attrs.define(eq=False)
class _Run:
    """The newest reports of the workers of one run, and when they came; ``attempt`` is the newest known."""

    name: str
    attempt: int = -1
    reports: dict[int, tuple[float, Report]] = attrs.field(factory=dict)


class ReportAggregator:
    """Keeps the reports of workers elsewhere, and combines them with those of this process."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: list[_Run] = []
        self._forked: RunGroups[_Received] = RunGroups(lambda each: bool(each.report["over"]))

    def open(self, name: str) -> Callable[[int, int, Report], None]:
        """Return a function that receives the reports of another run: ``receive(worker, attempt, report)``."""
        run = _Run(name)

        def receive(worker: int, attempt: int, report: Report) -> None:
            with self._lock:
                if attempt < run.attempt:
                    return
                if attempt > run.attempt:
                    run.attempt, run.reports = attempt, {}
                if run not in self._runs:
                    self._runs = [*self._runs, run][-_REMEMBERED:]
                run.reports[worker] = self._clock(), report

        return receive

    def receive(self, report: Report) -> None:
        """Receive a report from another process of this machine; late ones are dropped."""
        with self._lock:
            for last in itertools.chain.from_iterable(self._forked.all()):
                if _who(last.report) == _who(report):
                    if last.report["number"] < report["number"]:
                        last.at, last.report = self._clock(), report
                    return
            self._forked.add(report["worker"], report["peers"], _Received(self._clock(), report))

    def state(self, here: Sequence[Sequence[Report]]) -> list[dict[str, Any]]:
        """Return the state of each run; ``here`` are the reports of this process, by run."""
        with self._lock:
            forked = [self._aged((each.at, each.report) for each in group) for group in self._forked.all()]
            runs = [(run.name, self._aged(run.reports.values())) for run in self._runs]
        groups = [_together("", [{**report, "silent": 0.0} for report in group]) for group in here]
        groups += [_together("", group) for group in forked]
        return groups + [_together(name, sorted(reports, key=lambda report: int(report["worker"]))) for name, reports in runs]

    def _aged(self, received: Iterable[tuple[float, Report]]) -> list[Report]:
        """Return reports with the seconds since they came, where more is to come."""
        now = self._clock()
        return [{**report, "silent": 0.0 if report["over"] else now - at} for at, report in received]


def _who(report: Report) -> tuple[int, int]:
    """Return what identifies the reporter."""
    return report["process"], report["reporter"]


def _together(name: str, reports: Sequence[Report]) -> dict[str, Any]:
    """Return the state of one run from the reports of its workers, in order; ``key`` tells it from other runs."""
    numbers = sorted({dataflow["number"] for report in reports for dataflow in report["dataflows"]})
    memory = {(report["host"], report["process"]): report["memory"] for report in reports}
    return {
        "key": " ".join([name, *(f"{report['host']}/{report['process']}/{report['reporter']}" for report in reports[:1])]),
        "name": name,
        "over": all(report["over"] for report in reports),
        "memory": sum(memory.values()),
        "workers": [{key: value for key, value in report.items() if key != "dataflows"} for report in reports],
        "dataflows": [_dataflow(number, reports) for number in numbers],
    }


def _dataflow(number: int, reports: Sequence[Report]) -> dict[str, Any]:
    """Return the state of one dataflow: its drawing, and each operator's numbers in each worker."""
    parts = {report["worker"]: part for report in reports for part in report["dataflows"] if part["number"] == number}
    shape = next((shaped(part["shape"]) for part in parts.values() if part["shape"] is not None), None)
    done = [parts[report["worker"]]["done"] if report["worker"] in parts else {} for report in reports]
    described = [parts.get(report["worker"], {}).get("described", {}) for report in reports]
    return {
        "number": number,
        "path": next(part["path"] for part in parts.values()),
        "times": "" if shape is None else shape.times,
        "over": all(part["over"] for part in parts.values()),
        **_drawing(shape),
        "lag": max((part["lag"] for part in parts.values() if part.get("lag") is not None), default=None),
        "unread": max(part.get("unread", 0) for part in parts.values()),
        "edges": edge_counts(shape, _sent(parts.values())) if _whole(shape) else {},
        "stuck": _stuck(parts)[:_STUCK],
        "operators": [_operator(*each, done, described) for each in _operators(shape, done)],
    }


def _whole(shape: Snapshot | None) -> TypeGuard[Snapshot]:
    """Return whether a shape has all operators: in scopes that are shut they are unknown."""
    return shape is not None and all(operator.kind != "shut" for operator in shape.operators())


def _drawing(shape: Snapshot | None) -> dict[str, Any]:
    """Return the drawings of a dataflow, the same for as long as its structure is, and a name for them."""
    drawings, name = (None, None) if shape is None else _outline(_bare(shape))
    return {"drawings": drawings, "drawing": name}


@functools.lru_cache(maxsize=32)
def _outline(shape: Snapshot) -> tuple[dict[str, str], str]:
    drawings = Picture(shape).drawings(outline=True)
    return drawings, hashlib.blake2b("".join(drawings.values()).encode(), digest_size=8).hexdigest()


def _bare(shape: Snapshot) -> Snapshot:
    """Return a snapshot without what changes while a dataflow runs."""
    children = tuple(map(_bare, shape.children))
    return attrs.evolve(shape, frontiers=(), held=(), waiting=(), described=(), children=children)


def _sent(parts: Iterable[Report]) -> dict[tuple[str, str, int], int]:
    """Return the records that the workers have sent along each edge, in all."""
    sent: Counter[tuple[str, str, int]] = Counter()
    for part in parts:
        for sender, receiver, port, records in part.get("edges", ()):
            sent[sender, receiver, port] += records
    return sent


def _stuck(parts: Mapping[int, Report]) -> list[dict[str, Any]]:
    """Return the explanations, those that differ only in the first line once, with their workers."""
    reasons: dict[str, dict[str, Any]] = {}
    for worker, part in parts.items():
        if words := part["stuck"]:
            reasons.setdefault(words.partition("\n")[2] or words, {"workers": [], "words": words})["workers"].append(worker)
    return list(reasons.values())


def _operators(shape: Snapshot | None, done: Sequence[Mapping[str, Any]]) -> list[tuple[str, Snapshot | None]]:
    """Return the operators by path: all if the dataflow is drawn whole, else the slowest."""
    drawn = {} if shape is None else {operator.path: operator for operator in shape.operators() if operator.kind != "shut"}
    if _whole(shape):
        return list(drawn.items())
    seconds: dict[str, float] = defaultdict(float)
    for each in done:
        for path, numbers in each.items():
            seconds[path] += numbers[1]
    return [(path, drawn.get(path)) for path in sorted(seconds, key=lambda path: -seconds[path])[:DRAWN]]


def _operator(
    path: str, shape: Snapshot | None, done: Sequence[Mapping[str, Any]], described: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a row of the table; ``by_worker`` has (runs, seconds, records read, sent) of each worker.

    ``described`` has the texts of each worker.
    """
    return {
        "path": path,
        "built_at": "" if shape is None else shape.built_at,
        "frontiers": [] if shape is None else shape.frontiers,
        "held": [] if shape is None else shape.held,
        "waiting": [] if shape is None else shape.waiting,
        "by_worker": [each.get(path, (0, 0.0, 0, 0)) for each in done],
        "described": [each.get(path, []) for each in described],
    }


Sent = Mapping[tuple[str, str, int], int]
"""Records by sender, receiver and the receiver's port; a scope receives what enters it, or leaves it."""


def edge_counts(shape: Snapshot, sent: Sent) -> dict[str, list[int]]:
    """Return the records of each wire of each scope, by the scope's path, in the order of its wires.

    Operators send records; what enters or leaves a nested scope carries on the wires inside it and behind it.
    """
    around: dict[str, Snapshot] = {}

    def carried(shape: Snapshot, wire: Wire) -> int:
        (node, port), (to, to_port) = wire.source, wire.target
        if node == ENTRY:
            return arriving(around[shape.path], (shape.index, port)) if shape.path in around else 0
        child = shape.children[node]
        if child.kind == "scope":
            around[child.path] = shape
            return arriving(child, (EXIT, port))
        receiver = shape if to == EXIT else shape.children[to]
        return sent.get((child.path, receiver.path, to_port), 0)

    def arriving(shape: Snapshot, end: tuple[int, int]) -> int:
        """Return the records of all wires of a scope that end there."""
        return sum(carried(shape, wire) for wire in shape.wires if wire.target == end)

    def counts(shape: Snapshot) -> dict[str, list[int]]:
        """Return the records of each wire of a scope, and of those nested in it."""
        by_path = {shape.path: [carried(shape, wire) for wire in shape.wires]}
        for child in shape.children:
            if child.kind == "scope":
                around[child.path] = shape
                by_path |= counts(child)
        return by_path

    return counts(shape)


_MOST: Final = 240
"""Samples of a run, at most."""

_EVERY: Final = 1.0
"""Least seconds between two samples at first."""


@attrs.define(eq=False)
class _Series:
    """The samples of one run, and the least seconds between two."""

    every: float = _EVERY
    samples: list[dict[str, Any]] = attrs.field(factory=list)

    def add(self, sample: dict[str, Any]) -> None:
        if self.samples and sample["at"] - self.samples[-1]["at"] < self.every:
            return
        self.samples.append(sample)
        if len(self.samples) > _MOST:
            self.samples = self.samples[::2]
            self.every *= 2


class RunSamples:
    """Keeps samples of the runs that a page shows, and forgets those of runs that it no longer shows."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}

    def add(self, runs: Sequence[Mapping[str, Any]], at: float) -> None:
        """Take a sample of each run that is not over; of one that ended, the end."""
        self._series = {run["key"]: self._series.get(run["key"]) or _Series() for run in runs}
        for run in runs:
            series = self._series[run["key"]]
            if not run["over"]:
                series.add(_sample(run, at))
            elif not (series.samples and series.samples[-1]["over"]):
                series.samples.append(_sample(run, at))

    def of(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the samples of a run."""
        series = self._series.get(run["key"])
        return [] if series is None else list(series.samples)


def _sample(run: Mapping[str, Any], at: float) -> dict[str, Any]:
    """Return what is drawn over time: of workers memory and seconds in operators; of dataflows what ``_flow`` returns."""
    flows = run["dataflows"]
    return {
        "at": round(at, 2),
        "over": run["over"],
        "workers": {
            str(worker["worker"]): [
                worker["memory"],
                round(sum(row["by_worker"][place][1] for flow in flows for row in flow["operators"]), 3),
            ]
            for place, worker in enumerate(run["workers"])
        },
        "dataflows": {str(flow["number"]): _flow(flow) for flow in flows},
    }


def _flow(flow: Mapping[str, Any]) -> list[int | None]:
    """Return the records read by all operators, the epochs that the frontier is behind, and the unread records."""
    return [sum(done[2] for row in flow["operators"] for done in row["by_worker"]), flow["lag"], flow["unread"]]
