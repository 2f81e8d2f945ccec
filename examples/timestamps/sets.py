"""Sets as timestamps: the stations that a parcel has passed, in any order.

{weighed} and {scanned} are incomparable, and both before {weighed, scanned}. One class is both the timestamp and the path
summary, which adds stations. Books are weighed, then scanned; pianos the other way round. {weighed, scanned} waits for both.
"""

from __future__ import annotations

from timely import Exchange, InputPort, Notificator, OutputPort, Stream, Worker, execute


class Passed(frozenset[str]):
    """The stations passed; as a path summary, the stations of the path."""

    @classmethod
    def minimum(cls) -> Passed:
        return Passed()

    identity = minimum

    def results_in(self, time: Passed, /) -> Passed | None:
        return Passed(self | time)

    followed_by = results_in


def through(stream: Stream[Passed, str], name: str) -> Stream[Passed, str]:
    handle, passed = stream.scope.feedback(Passed({name}))  # an operator with a summary, without a cycle
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
        heavy, light = scope.to_stream(["book", "piano"], on="each").branch(lambda parcel: parcel == "book")
        weighed, scanned = through(light, "weighed"), through(heavy, "scanned")
        parcels = weighed.concat(scanned, through(weighed, "scanned"), through(scanned, "weighed"))
        parcels.unary_notify(Exchange(lambda parcel: 0), "record", [], record)
    worker.run()
    return log


def main(workers: int = 2) -> None:
    log = execute(program, workers=workers)[0]
    for names, parcels in {"weighed": ["book"], "scanned": ["piano"], "scanned weighed": ["book", "piano"]}.items():
        came = [entry[0] for entry in log if entry[1:] == tuple(names.split())]
        assert (sorted(came[:-1]), came[-1]) == (sorted(workers * parcels), "complete")


if __name__ == "__main__":
    main()
