"""Memory that two processes see: what is put there comes out as it went in, and what has no room there goes over the socket."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import timely
from timely.dataflow import pickled
from timely.errors import PeerLostError
from timely.worker.execution import _gather
from timely.worker.link import Link
from timely.worker.shared_memory import LARGEST, SharedMemoryBuffer, arenas
from timely.worker.transport import SocketTransport
from timely.worker.wire import AWAY, FAR, HEADER, FrameError, decode, framed

SIZE = 1 << 12


@pytest.fixture
def arena() -> Iterator[SharedMemoryBuffer]:
    made = SharedMemoryBuffer(SIZE)
    yield made
    made.close()


def put(arena: SharedMemoryBuffer, size: int, filling: int = 1) -> int:
    """Put so many bytes in, for which there must be room."""
    place = arena.put(bytes([filling]) * size)
    assert place is not None
    return place


# -- the memory itself -------------------------------------------------------------------------------------------------


@given(
    steps=st.lists(st.one_of(st.integers(1, SIZE + 1), st.none()), max_size=60),  # the size of a piece, or one is read
)
@example(steps=[SIZE, 1, None, SIZE])
@example(steps=[2000, 1000, None, 1500, 500, 100, None, None, 4000, None, None, 4000])
def test_pieces_come_out_as_they_went_in_however_they_are_read(steps: list[int | None]) -> None:
    arena = SharedMemoryBuffer(SIZE)
    under_way: deque[tuple[int, bytes]] = deque()
    for number, size in enumerate(steps):
        if size is not None:
            piece = bytes([number]) * size
            place = arena.put(piece)
            if place is not None:
                under_way.append((place, piece))
            else:
                assert under_way or size > SIZE  # when nothing is there, all of it is to be had
        elif under_way:
            place, piece = under_way.popleft()
            assert bytes(arena.piece(place)) == piece
            arena.read(1)
        for place, piece in under_way:  # nothing that is under way has been written over
            assert arena.piece(place) == piece
    arena.close()


def test_a_ring_goes_on_at_its_start_while_its_end_is_under_way(arena: SharedMemoryBuffer) -> None:
    places = [put(arena, 1024, number) for number in range(4)]
    assert arena.put(b"x") is None
    arena.read(2)
    places += [put(arena, 1024, 4), put(arena, 1024, 5)]
    assert places[4:] == places[:2]
    assert arena.put(b"x") is None
    assert [arena.piece(place)[0] for place in places[2:]] == [2, 3, 4, 5]
    arena.read(4)
    assert put(arena, SIZE) >> 32 == 0


def test_a_piece_may_fill_the_start_up_to_the_first_that_is_under_way(arena: SharedMemoryBuffer) -> None:
    put(arena, 1024)
    put(arena, SIZE - 1024)
    arena.read(1)
    assert arena.put(bytes(1025)) is None
    assert put(arena, 1024) >> 32 == 0
    assert arena.put(b"x") is None


def test_a_piece_is_never_cut_in_two(arena: SharedMemoryBuffer) -> None:
    put(arena, 3000)
    second = put(arena, 1000)
    arena.read(1)
    assert put(arena, 2000) >> 32 == 0  # there are 96 bytes behind the second
    assert arena.put(bytes(1100)) is None
    assert put(arena, 900) >> 32 == 2048
    assert second >> 32 == 3008


def test_both_processes_see_it() -> None:
    arena = SharedMemoryBuffer(SIZE)
    place = put(arena, 100, 7)
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            if arena.piece(place) == bytes([7]) * 100:
                arena.read(1)
        os._exit(0)
    os.waitpid(child, 0)
    assert put(arena, SIZE) == SIZE  # the child has counted it, so all is to be had again
    arena.close()


@pytest.mark.parametrize("place", [SIZE + 1, 1 << 32 | SIZE, 1 << 62, SIZE << 32 | 1, (1 << 63) - 1])
def test_a_place_that_is_not_in_it_is_refused(place: int, arena: SharedMemoryBuffer) -> None:
    with pytest.raises(FrameError, match="of memory that has 4096"):
        arena.piece(place)


def test_many_workers_share_what_there_is() -> None:
    sizes = {}
    for count in (0, 2, 24, 240, 257):
        made = arenas(count)
        sizes[count] = {len(arena._memory) for arena in made}
        assert len(made) == (count if count < 257 else 0)  # too little for each of so many
        for arena in made:
            arena.close()
    assert sizes == {0: set(), 2: {LARGEST}, 24: {2793472}, 240: {278528}, 257: set()}


def test_where_there_is_no_memory_to_be_had_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = mmap.mmap, list[Any]()

    def mapped(handle: int, size: int) -> Any:
        if len(made) == 3:
            raise OSError("no more")
        made.append(real(handle, size))
        return made[-1]

    monkeypatch.setattr(mmap, "mmap", mapped)
    assert arenas(6) == []
    assert [memory.closed for memory in made] == [True] * 3
    assert timely.execute(exchanging(1), processes=2) == timely.execute(exchanging(1), workers=2)


# -- frames ------------------------------------------------------------------------------------------------------------


def linked() -> tuple[Link, Link, SharedMemoryBuffer]:
    """Return two links that share memory, and what the first one writes to."""
    near, far = socket.socketpair()
    there, back = SharedMemoryBuffer(1 << 20), SharedMemoryBuffer(1 << 20)
    return Link(near, shared=(there, back)), Link(far, shared=(back, there)), there


def close(*links: Link) -> None:
    for link in links:
        link.sock.close()
        assert link._there is not None
        link._there.close()


def sent(one: Link, other: Link, *frames: list[Any]) -> list[Any]:
    """Send frames of messages, and return what has arrived when all has been written."""
    got: list[Any] = []
    for frame in frames:
        one.pending += frame
        one.flush()
        while one.backlog:
            other.read(got)
            one.write()
    other.read(got)
    return got


containers = st.one_of(
    st.integers(0, 40_000).map(lambda size: np.arange(size)),
    st.integers(0, 40_000).map(lambda size: pa.record_batch({"n": np.arange(size), "m": np.ones(size)})),
    st.integers(0, 40_000).map(lambda size: list(range(size))),
    st.integers(0, 100_000).map(lambda size: [bytes([size % 256]) * size, bytearray([size % 255]) * size]),
)


@given(rounds=st.lists(st.tuples(st.lists(st.lists(containers, max_size=2), max_size=3), st.integers(0, 6)), max_size=5))
def test_messages_of_every_kind_come_in_order_however_late_they_are_read(rounds: list[tuple[list[list[Any]], int]]) -> None:
    one, other, _ = linked()
    expected: list[Any] = []
    got: list[Any] = []
    for frames, reads in rounds:
        for content in frames:
            one.pending.append(("data", 0, 1, len(expected), content))
            expected.append(one.pending[-1])
            one.flush()
        for _ in range(reads):
            other.read(got)
            one.flush()
    while len(got) < len(expected):
        other.read(got)
        one.flush()
    assert [message[:4] for message in got] == [message[:4] for message in expected]
    for message, original in zip(got, expected, strict=True):
        for found, wanted in zip(message[4], original[4], strict=True):
            assert np.array_equal(found, wanted) if isinstance(wanted, np.ndarray) else found == wanted
    close(one, other)


@pytest.mark.parametrize("content", [np.arange(1 << 14), [list(range(1 << 16))], pa.record_batch({"n": np.arange(1 << 14)})])
def test_what_is_large_does_not_go_over_the_socket(content: Any) -> None:
    one, other, _ = linked()
    one.pending.append(("data", 0, 1, 0, content))
    one.flush()
    frame = other.sock.recv(1 << 20, socket.MSG_PEEK)
    assert len(frame) < 1000
    got: list[Any] = []
    other.read(got)
    assert np.array_equal(got[0][4], content)
    close(one, other)


def test_what_has_no_room_goes_over_the_socket_and_in_order() -> None:
    one, other, there = linked()
    arrays = [np.full(size, number) for number, size in enumerate([100_000, 10_000, 150_000, 20_000])]  # of 1 MB in all
    messages = [("data", 0, 1, number, array) for number, array in enumerate(arrays)]
    got = sent(one, other, *([message] for message in messages), messages)
    assert [(message[3], len(message[4]), set(message[4].tolist())) for message in got] == 2 * [
        (number, len(array), {number}) for number, array in enumerate(arrays)
    ]
    assert put(there, 1 << 20) == 1 << 20  # all of it has been counted as read
    close(one, other)


def test_arrays_that_arrive_can_be_written_to_and_stay_as_they_are() -> None:
    one, other, _ = linked()
    first = sent(one, other, [("data", 0, 1, 0, np.zeros(FAR))])[0][4]
    first += 1
    second = sent(one, other, [("data", 0, 1, 1, np.full(FAR, 7.0))])[0][4]
    assert first.flags.writeable and second.flags.writeable
    assert (set(first.tolist()), set(second.tolist())) == ({1.0}, {7.0})
    batch = sent(one, other, [("data", 0, 1, 2, pa.record_batch({"n": np.arange(FAR)}))])[0][4]
    sent(one, other, [("data", 0, 1, 3, np.zeros(FAR))])
    assert batch == pa.record_batch({"n": np.arange(FAR)})
    close(one, other)


def test_a_frame_that_says_it_is_elsewhere_is_refused_where_nothing_is_shared() -> None:
    arena = SharedMemoryBuffer(1 << 20)
    frame = memoryview(b"".join(framed(pickled(("data", np.zeros(FAR))), arena)))
    assert np.array_equal(decode(frame[HEADER.size :], 2, arena)[1], np.zeros(FAR))
    with pytest.raises(FrameError, match="do not make up"):
        decode(frame[HEADER.size :], 2)
    near, far = socket.socketpair()
    transport = SocketTransport(1, {0: far})
    with near, pytest.raises(PeerLostError, match="cut off .* do not make up"):
        near.sendall(frame)
        transport.receive()
    transport.close(0)
    arena.close()


@pytest.mark.parametrize("size", [AWAY | (1 << 20) + 1, AWAY | 1 << 62])
def test_a_frame_that_says_it_is_where_nothing_can_be_is_refused(size: int) -> None:
    one, other, _ = linked()
    body = size.to_bytes(8, "little")
    one.sock.sendall(HEADER.pack(len(body), 1) + body)
    other.read([])
    assert (other.gone, "of memory that has 1048576" in other.fault) == (True, True)
    close(one, other)


# -- processes ---------------------------------------------------------------------------------------------------------


def exchanging(rounds: int) -> Callable[[timely.Worker], dict[tuple[str, int], int]]:
    """Return a program that deals large arrays, batches and lists to all, and says what this worker got: sums, by epoch."""

    def program(worker: timely.Worker) -> dict[tuple[str, int], int]:
        sums: dict[tuple[str, int], int] = {}

        def add(kind: str, time: int, batch: Any) -> None:
            numbers = batch["n"].to_numpy() if kind == "batches" else np.asarray(batch)
            sums[kind, time] = sums.get((kind, time), 0) + int(numbers.sum())

        kinds: dict[str, tuple[Callable[[Any], Any], Any]] = {
            "arrays": (lambda array: array, lambda numbers: numbers),
            "batches": (lambda array: pa.record_batch({"n": array}), "n"),
            "lists": (lambda array: array.tolist(), lambda number: number),
        }
        with worker.dataflow(int) as scope:
            for kind, (make, key) in kinds.items():
                handle, stream = scope.new_input()
                stream.exchange(key).inspect_batch(partial(add, kind))
                for number in range(rounds):
                    handle.send_batch(make(np.arange(50_000) + worker.index + number))
                    handle.advance_to(number + 1)
                handle.close()
        worker.run()
        return sums

    return program


@pytest.mark.parametrize(("workers", "processes"), [(1, 2), (1, 3), (2, 2)])
def test_processes_give_what_threads_give(workers: int, processes: int) -> None:
    program = exchanging(3)
    assert timely.execute(program, workers=workers, processes=processes) == timely.execute(program, workers=workers * processes)


def test_what_processes_send_each_other_goes_that_way(monkeypatch: pytest.MonkeyPatch) -> None:
    real, sizes = SharedMemoryBuffer.put, list[int]()

    def noted(arena: SharedMemoryBuffer, piece: bytes | memoryview) -> int | None:
        sizes.append(len(piece))
        return real(arena, piece)

    def program(worker: timely.Worker) -> tuple[int, int]:
        exchanging(2)(worker)
        return len(sizes), min(sizes)

    monkeypatch.setattr(SharedMemoryBuffer, "put", noted)
    for pieces, smallest in timely.execute(program, processes=2):
        assert pieces >= 5  # arrays and batches of two epochs, and lists, which may be in one pickle
        assert smallest >= FAR


def test_a_receiver_that_is_killed_ends_the_run_and_keeps_nobody_waiting() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            stream.exchange(lambda x: 1 + x % 0 if x < 0 else 1).probe()
        if worker.index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for number in range(1000):  # far more than there is room for
            handle.send_batch(list(range(50_000)))
            handle.advance_to(number + 1)
            worker.step()

    with pytest.raises(timely.WorkerError, match="process 1 .* ended with exit code -9"):
        timely.execute(program, processes=2)


def test_each_process_maps_what_it_uses_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/maps").exists():
        pytest.skip("counts mappings as Linux shows them")

    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum("/dev/zero" in line for line in maps)

    def gather(*arguments: Any) -> Any:
        waiting.append(mapped())
        return real(*arguments)

    real, waiting, before = _gather, list[int](), mapped()
    monkeypatch.setattr(sys.modules[_gather.__module__], "_gather", gather)
    inside = timely.execute(lambda worker: mapped(), workers=2, processes=3)
    assert [count - before for count in inside] == [16] * 6  # from and to each of its two, with four elsewhere
    assert waiting == [before]  # the process that waits for the others needs none
    assert mapped() == before
