"""``Tally``: what each operator of one worker has done so far, added up from its event log.

The invariant: what is added up is what the log told, no more and no less. Dataflows of one name are added up as one. Another
thread may read it while it grows: each number in it is one that was true a moment ago.
"""

from __future__ import annotations

import attrs

from timely.inspect.event_log import EventLog
from timely.inspect.events import Ended, Event, ProgressHeard, ProgressTold, Read, Scheduled, Sent, Waited


@attrs.define
class OperatorTally:
    """Of one operator: how often it has run, for how many seconds in all and at most, and the records that it has read and sent.

    A record that goes to two inputs counts twice.
    """

    runs: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    read: int = 0
    sent: int = 0


@attrs.define
class Tally:
    """The numbers of one worker; ``operators`` are by path, ``ended`` the paths of dataflows that are complete.

    >>> import timely
    >>> from timely.inspect import EventLog, Tally
    >>> worker = timely.Worker()
    >>> tally = Tally.of(EventLog(worker))
    >>> with worker.dataflow(name="df") as scope:
    ...     _ = scope.to_stream(range(5)).filter(lambda x: x > 2).capture()
    >>> worker.run()
    >>> found = tally.operators["/df/filter#1"]
    >>> found.read, found.sent, tally.ended
    (5, 2, ['/df'])
    """

    worker: int
    operators: dict[str, OperatorTally] = attrs.field(factory=dict)
    ended: list[str] = attrs.field(factory=list)
    waited: float = 0.0
    told: int = 0
    heard: int = 0

    @classmethod
    def of(cls, log: EventLog) -> Tally:
        """Return a tally that adds up what ``log`` tells from now on."""
        tally = cls(log.worker)
        log.subscribe(tally.take)
        return tally

    def _operator(self, path: str) -> OperatorTally:
        found = self.operators.get(path)
        if found is None:
            found = self.operators[path] = OperatorTally()
        return found

    def take(self, event: Event) -> None:
        """Add one event."""
        if isinstance(event, Scheduled):
            operator = self._operator(event.path)
            operator.runs += 1
            operator.seconds += event.seconds
            operator.longest = max(operator.longest, event.seconds)
        elif isinstance(event, Sent):
            self._operator(event.path).sent += event.records
        elif isinstance(event, Read):
            self._operator(event.path).read += event.records
        elif isinstance(event, Waited):
            self.waited += event.seconds
        elif isinstance(event, ProgressTold):
            self.told += 1
        elif isinstance(event, ProgressHeard):
            self.heard += 1
        elif isinstance(event, Ended):
            self.ended.append(event.path)
