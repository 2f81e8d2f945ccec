"""Two workers by hand: what someone who knows both Spark and NumPy would write for this one graph, and no other.

A barrier job whose two tasks meet through a socket of the driver's and then talk over one of their own. It knows what a
library has to find out: that there are two workers, that the nodes are the numbers from 0 up, and how many there are. It
checks nothing, recovers from nothing, and its result is what the barrier stage itself gives, which Spark cannot retry.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame

from timely.spark.session import this_python

Swap = Callable[[Any], Any]
"""Gives the other worker an array, and returns the one that it gave."""

Part = Callable[[Any, Any, int, Swap], tuple[str, Any]]
"""One worker's part: from its edges, the number of nodes and a way to swap, to a value for each node; -1 for no row."""


def by_hand(edges: DataFrame, nodes: int, part: Part, schema: str, *, dealt: bool = False) -> DataFrame:
    """Return ``(node, value)`` of the nodes that are there; may be used once, since the tasks meet once.

    ``dealt`` says that the edges are in two partitions, about even, which nothing will merge: then no shuffle deals them.
    """
    meeting = socket.create_server(("127.0.0.1", 0))
    port = meeting.getsockname()[1]
    threading.Thread(target=_introduce, args=(meeting,), daemon=True).start()

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = BarrierTaskContext.get().partitionId()
        given = [(batch.column("src").to_numpy(), batch.column("dst").to_numpy()) for batch in batches]
        src, dst = (np.concatenate([ends[i] for ends in given]) for i in (0, 1))
        with _meet(index, port) as peer:
            name, values = part(src, dst, nodes, lambda mine: _swap(peer, index, mine))
        mine = np.arange(index, nodes, 2)
        mine = mine[values[mine] >= 0]
        yield pa.record_batch({"node": mine, name: values[mine]})

    with this_python(edges.sparkSession.sparkContext):
        return (edges if dealt else edges.repartition(2)).mapInArrow(work, schema, barrier=True)


def _introduce(meeting: socket.socket) -> None:
    """Tell worker 1 where worker 0 listens."""
    with meeting:
        come = {}
        for _ in range(2):
            connection, _address = meeting.accept()
            hello = int.from_bytes(connection.recv(8), "big")
            come[hello & 1] = (connection, hello >> 1)
        come[1][0].sendall(come[0][1].to_bytes(8, "big"))
        for connection, _port in come.values():
            connection.close()


def _meet(index: int, port: int) -> socket.socket:
    """Return the connection to the other worker."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(("127.0.0.1", port)) as driver:
        driver.sendall((listener.getsockname()[1] << 1 | index).to_bytes(8, "big"))
        if index == 0:
            connection, _address = listener.accept()
        else:
            connection = socket.create_connection(("127.0.0.1", int.from_bytes(driver.recv(8), "big")))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _swap(peer: socket.socket, index: int, mine: Any) -> Any:
    """Send ``mine`` and return what the other one has sent, which is of the same type; worker 0 sends first."""
    if index == 0:
        peer.sendall(len(mine).to_bytes(8, "big") + mine.tobytes())
    size = _receive(peer, 8)
    theirs = np.frombuffer(_receive(peer, int.from_bytes(size, "big") * mine.itemsize), mine.dtype)
    if index == 1:
        peer.sendall(len(mine).to_bytes(8, "big") + mine.tobytes())
    return theirs


def _receive(peer: socket.socket, size: int) -> bytearray:
    received = bytearray(size)
    rest = memoryview(received)
    while rest:
        rest = rest[peer.recv_into(rest) :]
    return received


def components(src: Any, dst: Any, nodes: int, swap: Swap) -> tuple[str, Any]:
    """Hook and jump over the edges here, then over what the other has found."""
    there = np.zeros(nodes, np.bool_)
    there[src] = there[dst] = True
    labels = _joined(np.arange(nodes), src, dst)
    labels = _joined(labels, np.arange(nodes), swap(labels))
    return "component", np.where(there | swap(there), labels, -1)


def _joined(labels: Any, src: Any, dst: Any) -> Any:
    """Return the labels, each the smallest node of its component, once ``src`` and ``dst`` are joined as well."""
    while True:
        one, other = labels[src], labels[dst]
        apart = one != other
        if not apart.any():
            return labels
        src, dst, one, other = src[apart], dst[apart], one[apart], other[apart]
        np.minimum.at(labels, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(further := labels[labels], labels):
            labels = further


def distances(src: Any, dst: Any, nodes: int, swap: Swap) -> tuple[str, Any]:
    """Level by level from node 0; both know the front, and each goes along its own edges."""
    targets = dst[np.argsort(src, kind="stable")]
    counts = np.bincount(src, minlength=nodes)
    starts = np.cumsum(counts) - counts
    found = np.full(nodes, -1)
    found[0] = level = 0
    front = np.array([0])
    while len(front):
        level += 1
        many = counts[front]
        ends = np.cumsum(many)
        mine = targets[np.arange(ends[-1]) + np.repeat(starts[front] - ends + many, many)]
        mine = np.unique(mine[found[mine] < 0])
        front = np.union1d(mine, swap(mine))
        found[front] = level
    return "distance", found


def ranks(rounds: int) -> Part:
    """PageRank; each adds up along its own edges, and both add that together."""

    def part(src: Any, dst: Any, nodes: int, swap: Swap) -> tuple[str, Any]:
        counts = np.bincount(np.concatenate((src, dst)), minlength=nodes)
        there = counts + swap(counts) > 0
        degrees = np.bincount(src, minlength=nodes)
        degrees = degrees + swap(degrees)
        total = there.sum()
        given, loose = 1 / np.maximum(degrees, 1), there & (degrees == 0)
        found = np.where(there, 1 / total, 0)
        for _ in range(rounds):
            sums = np.bincount(dst, (found * given)[src], nodes)
            sums = sums + swap(sums)
            found = np.where(there, 0.15 / total + 0.85 * (sums + found[loose].sum() / total), 0)
        return "rank", np.where(there, found, -1)

    return part
