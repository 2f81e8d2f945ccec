"""Event time with bounded lateness: events may be late by at most BOUND; later ones are dropped.

One class is both the timestamp (a moment) and the path summary (a duration). Nothing passes its END. After an event at t a
source advances its input to t - BOUND, so it sends nothing older.
"""

from __future__ import annotations

import timely
from timely import InputPort, Notificator, OutputPort

BOUND, END = 30, 4_102_444_800


class Seconds(int):
    """A moment, in seconds from 1970 to 2099; as a path summary, a number of seconds."""

    @classmethod
    def minimum(cls) -> Seconds:
        return Seconds(0)

    identity = minimum

    def results_in(self, time: Seconds, /) -> Seconds | None:
        return Seconds(self + time) if self + time < END else None

    followed_by = results_in


EVENTS = [Seconds(1_767_225_600 + n) for n in (5, 20, 2, 50, 35, 70, 45, 130, 3, 101, 170, 150)]  # 3 is late


def program(worker: timely.Worker) -> list[tuple[Seconds, list[int]]]:
    def count(input: InputPort[Seconds, Seconds], output: OutputPort[Seconds], due: Notificator[Seconds]) -> None:
        for capability, batch in input:
            for event in batch:
                due.notify_at(capability.delayed(Seconds(event // 60 * 60 + 60)))
        for complete, asked in due:  # once per event of the minute
            output.session(complete).give(asked)

    with worker.dataflow(Seconds) as scope:
        handle, events = scope.new_input()
        counts = events.unary_notify(timely.Exchange(lambda event: event // 60), "count", [], count).capture()
    for event in EVENTS if worker.index == 0 else []:
        if event >= handle.time:
            handle.send(event)
            handle.advance_to(max(handle.time, Seconds(event - BOUND)))
    handle.close()
    worker.run()
    return counts.extract()


def main(workers: int = 2) -> None:
    counts = [(time % 3600, n) for share in timely.execute(program, workers=workers) for time, ns in share for n in ns]
    assert sorted(counts) == [(60, 6), (120, 2), (180, 3)]


if __name__ == "__main__":
    main()
