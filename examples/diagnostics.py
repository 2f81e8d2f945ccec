"""Diagnostics: a live page, an event log as a stream, and explanations in words.

A dataflow counts the words in the descriptions of Debian's packages. A page on a local port shows the records that each
operator has read and sent; here the program requests the same as JSON. A second dataflow counts the events of the log. The
program forgets to close the input, so the worker explains why the counts do not arrive.
"""

from __future__ import annotations

import json
import re
import urllib.request

import timely
from timely.cli.debian import packages
from timely.inspect import EventLog, LivePage, Read


def descriptions() -> list[str]:
    """The descriptions of Debian's packages."""
    return list(packages()["description"].to_pylist())


def main() -> None:
    worker, events = timely.Worker(), timely.EventLink[int]()
    log = EventLog(worker)
    log.into(events)
    with LivePage() as page:
        page.watch(worker)
        with worker.dataflow(int, name="words") as scope:
            lines, stream = scope.new_input()
            words = stream.flat_map(lambda line: re.findall(r"[a-z]{4,}", line.lower()))
            counts = words.value_counts()
            seen, probe = counts.capture(), counts.probe()
        lines.send_batch(descriptions())
        for _ in range(10):
            worker.step()

        with urllib.request.urlopen(page.url + "state.json") as answer:
            operators = json.load(answer)["runs"][0]["dataflows"][0]["operators"]
    for operator in operators:
        (done,) = operator["by_worker"]  # activations, seconds, records read, records sent
        if any(done[2:]):
            print(f"{operator['path']:32} read {done[2]:7,} sent {done[3]:7,}")

    print()
    reason = worker.explain(probe).reasons[0]
    print(f"the counts do not come, since the {reason.kind} {reason.path} may still send at {reason.time}")
    lines.close()
    worker.run()
    top = sorted((pair for _, batch in seen.extract() for pair in batch), key=lambda pair: (-pair[1], pair[0]))
    print("it is closed, and here they are:", ", ".join(f"{word} {count:,}" for word, count in top[:4]))

    log.close()
    with log.aside(), worker.dataflow(int, name="of the log") as scope:
        reads = scope.replay(events).filter(lambda event: isinstance(event, Read))
        totals = reads.map(lambda event: (event.path, event.records)).aggregate(
            lambda path, records, total: records + (total or 0), lambda path, total: (path, total)
        )
        found = totals.capture()
    worker.run()
    read: dict[str, int] = {}
    for _, batch in found.extract():
        for path, records in batch:
            read[path] = read.get(path, 0) + records
    print(f"by the log, {max(read, key=lambda path: read[path])} has read the most: {max(read.values()):,} records")


if __name__ == "__main__":
    main()
