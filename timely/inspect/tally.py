"""``Tally``: what each operator of one worker has done, added up from its event log.

Dataflows of one name are added up as one. Other threads may read it while it grows: each number was true a moment ago.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import attrs

from timely.inspect.event_log import EventLog
from timely.inspect.trace_events import Ended, Event, ProgressReceived, ProgressSent, Read, RecordsSent, Scheduled, Waited


@attrs.define
class OperatorTally:
    """The runs of one operator, their seconds, and records read and sent (to two inputs: twice)."""

    runs: int = 0
    seconds: float = 0.0
    read: int = 0
    sent: int = 0


@attrs.define
class Tally:
    """The numbers of one worker: ``operators`` by path, progress batches, and the paths of dataflows that have ended.

    ``edges`` are the records sent, by the paths of sender and receiver and the receiver's port.

    >>> import timely
    >>> from timely.inspect import EventLog, Tally
    >>> worker = timely.Worker()
    >>> tally = Tally.of(EventLog(worker))
    >>> with worker.dataflow(name="df") as scope:
    ...     _ = scope.to_stream(range(5)).filter(lambda x: x > 2).capture()
    >>> worker.run()
    >>> found = tally.operators["/df/filter#1"]
    >>> found.read, found.sent, tally.edges["/df/filter#1", "/df/capture#2", 0], tally.ended
    (5, 2, 2, ['/df'])
    """

    worker: int
    operators: defaultdict[str, OperatorTally] = attrs.field(factory=lambda: defaultdict(OperatorTally))
    edges: Counter[tuple[str, str, int]] = attrs.field(factory=Counter)
    ended: list[str] = attrs.field(factory=list)
    waited: float = 0.0
    progress_sent: int = 0
    progress_received: int = 0

    @classmethod
    def of(cls, log: EventLog) -> Tally:
        """Return a tally of the events of ``log`` from now on."""
        tally = cls(log.worker)
        log.subscribe(tally.add)
        return tally

    def add(self, event: Event) -> None:
        """Add one event."""
        if isinstance(event, Scheduled):
            operator = self.operators[event.path]
            operator.runs += 1
            operator.seconds += event.seconds
        elif isinstance(event, RecordsSent):
            self.operators[event.path].sent += event.records
            self.edges[event.path, *event.target] += event.records
        elif isinstance(event, Read):
            self.operators[event.path].read += event.records
        elif isinstance(event, Waited):
            self.waited += event.seconds
        elif isinstance(event, ProgressSent):
            self.progress_sent += 1
        elif isinstance(event, ProgressReceived):
            self.progress_received += 1
        elif isinstance(event, Ended):
            self.ended.append(event.path)
