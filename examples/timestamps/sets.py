"""Times that are sets: which stations a parcel has been through, in whatever order.

{weighed} and {scanned} are incomparable, both before {weighed, scanned}. One class is the type of times and of summaries,
which add their names. Books are weighed, then scanned, pianos the other way round; {weighed, scanned} waits for both.
"""

from __future__ import annotations

from timely import Exchange, InputPort, Notificator, OutputPort, Stream, Worker, execute


class Passed(frozenset[str]):
    """What has been through these stations; as a path summary: a path through these stations."""

    @classmethod
    def minimum(cls) -> Passed:
        return Passed()

    identity = minimum

    def results_in(self, time: Passed, /) -> Passed | None:
        return Passed(self | time)

    followed_by = results_in


def through(stream: Stream[Passed, str], name: str) -> Stream[Passed, str]:
    handle, passed = stream.scope.feedback(Passed({name}))  # an operator with a summary; here it closes no cycle
    stream.connect_loop(handle)
    return passed


def program(worker: Worker) -> list[tuple[str, ...]]:
    log: list[tuple[str, ...]] = []

    def record(input: InputPort[Passed, str], output: OutputPort[Passed], notificator: Notificator[Passed]) -> None:
        for capability, parcels in input:
            log.extend((parcel, *sorted(capability.time)) for parcel in parcels)
            notificator.notify_at(capability.retain())
        log.extend(("complete", *sorted(capability.time)) for capability, _ in notificator)

    with worker.dataflow(Passed) as scope:
        heavy, light = scope.to_stream(["book", "piano"], on=0).branch(lambda parcel: parcel == "book")
        weighed, scanned = through(light, "weighed"), through(heavy, "scanned")
        parcels = weighed.concat(scanned, through(weighed, "scanned"), through(scanned, "weighed"))
        parcels.unary_notify(Exchange(lambda parcel: 0), "record", [], record)
    worker.run()
    return log


def main(workers: int = 2) -> None:
    log = execute(program, workers=workers)[0]
    for names, parcels in {"weighed": ["book"], "scanned": ["piano"], "scanned weighed": ["book", "piano"]}.items():
        came = [entry[0] for entry in log if entry[1:] == tuple(names.split())]
        assert (sorted(came[:-1]), came[-1]) == (parcels, "complete")


if __name__ == "__main__":
    main()
