"""Two-dimensional times: when the system received an event, and when it happened.

`Product(system, event)` is ordered by coordinate. A count for an hour at system time 1 is complete when nothing more can
arrive at times up to (1, hour). A late event at system time 2 gives a corrected count at (2, hour). When the input can no
longer receive events before some hour, the state of earlier hours is dropped.
"""

from __future__ import annotations

from collections import defaultdict

import timely
from timely import InputPort, Notificator, OutputPort, Product

Time = Product[int, int]
ARRIVALS = [[9, 10, 9], [10, 11], [9, 11], [9, 10]]  # the hours of events, by system time of arrival
PROMISES = [0, 0, 0, 10]  # the first hour that can still arrive


def program(worker: timely.Worker) -> tuple[list[tuple[Time, list[tuple[int, int]]]], list[int]]:
    received: defaultdict[int, list[int]] = defaultdict(list)

    def count(input: InputPort[Time, int], output: OutputPort[Time], due: Notificator[Time]) -> None:
        for capability, hours in input:
            for hour in hours:
                received[hour].append(capability.time.outer)
                due.notify_at(capability.delayed(Product(capability.time.outer, hour)))
        for complete, _ in due:
            system, hour = complete.time
            output.session(complete).give((hour, sum(at <= system for at in received[hour])))
        for hour in [hour for hour in received if not input.frontier.less_equal(Product(10**9, hour))]:
            del received[hour]

    with worker.dataflow(Time) as scope:
        handle, events = scope.new_input()
        counts = events.unary_notify(timely.Exchange(lambda hour: hour), "count", [], count)
        results, probe = counts.capture(), counts.probe()
    for system, (hours, promise) in enumerate(zip(ARRIVALS, PROMISES)):
        handle.advance_to(Product(system, promise))
        for hour in hours if worker.index == 0 else []:
            if hour >= promise:
                handle.send(hour)
    handle.advance_to(Product(len(ARRIVALS), PROMISES[-1]))
    worker.step_while(lambda: probe.less_than(handle.time))
    remembered = sorted(received)
    handle.close()
    worker.run()
    return results.extract(), remembered


def main(workers: int = 2) -> None:
    shares = timely.execute(program, workers=workers)
    counts = sorted((time.outer, *pair) for results, _ in shares for time, pairs in results for pair in pairs)
    assert counts == [(0, 9, 2), (0, 10, 1), (1, 10, 2), (1, 11, 1), (2, 9, 3), (2, 11, 2), (3, 10, 3)]
    assert sorted(hour for _, remembered in shares for hour in remembered) == [10, 11], "9 is forgotten"


if __name__ == "__main__":
    main()
