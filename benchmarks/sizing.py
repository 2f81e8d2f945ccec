"""Sizing: what a worker costs in memory and in progress, from a few workers up to as many as one can only reckon with.

``run`` returns the figures of ``docs/memory.md``. ``python -m benchmarks.sizing docs/img`` draws its pictures (extra ``plots``).
Nearly all are counts, which are the same on every machine.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Row
from benchmarks.sizing_memory import Quiet, allocated, memory_rows, pass_on
from benchmarks.sizing_time import time_rows
from benchmarks.sizing_traffic import draw, freely_rows, mode_rows, scattered_rows, traffic_rows
from timely import Pipeline, Stream, Worker
from timely.spark.stage_messages import LARGEST
from timely.worker.stall import QuietReport, StallDetector
from timely.worker.wire import encode
from timely.worker.worker_messages import GraphMessage, QuietMessage, pack

SIZES = (2, 10, 100, 1_000, 10_000)


def addresses(workers: int) -> dict[str, Any]:
    """Return what the driver tells one worker: where all are (with IPv4 addresses)."""
    return {"peers": [[f"10.{w >> 16}.{w >> 8 & 255}.{w & 255}", 40_000] for w in range(workers)]}


def address_table(workers: int) -> int:
    """Return the bytes of the frame in which the driver tells one worker where all are."""
    return len(json.dumps(addresses(workers)))


def quiet_report(workers: int, sent: int = 1_000) -> int:
    """Return the bytes in which a worker that waits tells one peer how many messages went between it and everybody."""
    return sum(map(len, encode([pack(QuietMessage(quiet_detector(workers, sent).report(), True))])))


def quiet_detector(workers: int, sent: int = 1_000) -> StallDetector:
    """Return the books of a worker between which and every other one there went so many messages."""
    detector = StallDetector(0, workers)
    for peer in range(1, workers):
        detector.count_received(peer, sent)
        detector.count_sent(peer)
    return detector


def quiet_reports_kept(workers: int) -> int:
    """Return how many bytes a worker holds of what everybody has told of itself, as they are after they were unpickled."""
    report = quiet_detector(2).report()
    return allocated(
        lambda: [QuietReport(report.ended + peer, report.sent + peer, report.received + peer) for peer in range(workers)]
    )


def graph_description(operators: int) -> int:
    """Return the bytes in which a worker tells one peer what a dataflow looks like that it has built."""
    told: list[Any] = []

    class Listening(Quiet):
        def send(self, peer: int, message: Any) -> None:
            told.append(message)

    worker = Worker(Listening(2))
    with worker.dataflow() as scope:
        chain: Stream[int, Any] = scope.empty()
        for _ in range(operators):
            chain = chain.unary(Pipeline, "pass on", pass_on)
        chain.probe()
    return sum(map(len, encode([pack(message) for message in told if isinstance(message, GraphMessage)])))


def growth_rows() -> list[Row]:
    """Count what there is for every pair of workers, or more."""
    rows = []
    for workers in SIZES:
        size = address_table(workers)
        note = "the driver sends it to each"
        rows.append(Row(f"{workers} workers: address table, bytes", size, floor=LARGEST, less=True, note=note))
    for workers in SIZES:
        rows.append(Row(f"{workers} workers: quiet report to one peer, bytes", quiet_report(workers)))
    for workers in (100, 1_000):
        each = quiet_reports_kept(workers) / workers
        rows.append(Row(f"{workers} workers: quiet reports of all, kept by each, bytes per worker", each))
    table = addresses(SIZES[-1])
    start = time.process_time()
    json.dumps(table)
    rows.append(Row(f"{SIZES[-1]} workers: packing the address table once, ms", 1e3 * (time.process_time() - start)))
    for operators in (10, 100, 1000):
        rows.append(Row(f"description of {operators} operators to one peer, bytes", graph_description(operators)))
    return rows


def run(rounds: int = 1) -> list[Row]:
    """Return all rows. All but the last are counts, which one round is enough for; the bar is on what one extrapolates from."""
    counts = [*memory_rows(), *traffic_rows(), *scattered_rows(), *freely_rows(), *mode_rows(), *growth_rows()]
    return [*counts, *time_rows(rounds)]


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
