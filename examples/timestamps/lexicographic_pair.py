"""Lexicographic pairs: the entries of a replicated log, by the term of their leader and their place.

(1, 99) < (2, 0), which are incomparable as a `Product`. So a reader of (1, 99) may wait for (2, 0): then term 1 is complete,
however long it was. One class is both the timestamp and the path summary, which adds terms and places.
"""

from __future__ import annotations

import attrs

import timely
from timely import InputPort, Notificator, OutputPort


@attrs.frozen(order=True)  # compared like tuples
class LogTime:
    """A term and a place in it; as a path summary, numbers of terms and places."""

    term: int
    place: int

    @classmethod
    def minimum(cls) -> LogTime:
        return cls(0, 0)
    identity = minimum

    def results_in(self, time: LogTime, /) -> LogTime | None:
        return LogTime(self.term + time.term, self.place + time.place)
    followed_by = results_in


ENTRIES = [LogTime(1, 0), LogTime(1, 1), LogTime(1, 7), LogTime(3, 0), LogTime(3, 2)]


def program(worker: timely.Worker) -> list[tuple[LogTime, list[int]]]:
    def measure(input: InputPort[LogTime, str], output: OutputPort[LogTime], due: Notificator[LogTime]) -> None:
        for capability, entries in input:
            for _ in entries:
                due.notify_at(capability.delayed(LogTime(capability.time.term + 1, 0)))
        for complete, asked in due:  # once per entry of the term
            output.session(complete).give(asked)

    with worker.dataflow(LogTime) as scope:
        handle, log = scope.new_input()
        lengths = log.unary_notify(timely.Exchange(lambda entry: 0), "measure", [], measure).capture()
    with handle:
        for time in ENTRIES:
            handle.advance_to(time)
            handle.send(f"entry {time.place}")
    worker.run()
    return lengths.extract()


def main(workers: int = 2) -> None:
    assert timely.execute(program, workers=workers)[0] == [(LogTime(2, 0), [3 * workers]), (LogTime(4, 0), [2 * workers])]


if __name__ == "__main__":
    main()
