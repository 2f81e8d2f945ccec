"""Recordings made to do harm are refused, in little memory, and every plain recording is read.

White box: no sink writes such files, so pickles and frames are made here.
"""

from __future__ import annotations

import contextlib
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import timely
from timely import CaptureError, FileSource, Messages, Progress
from timely.dataflow import PlainPickles
from timely.dataflow.containers.plain_pickles import is_flat, verify
from timely.operators import StreamState
from timely.operators.recordings.capture_events import frame
from timely.operators.recordings.recording import MAGIC, VERSION
from timely.order import Product

OPENING = pickle.dumps(("progress", [(0, 1)]), 5)
ARRAY = ("timely.dataflow.containers.pickling", "read_array")
BATCH = ("timely.dataflow.containers.pickling", "read_batch")
MANY = struct.pack("<i", 2**31 - 1)


def name(module: str, attribute: str) -> bytes:
    return b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, attribute)) + pickle.STACK_GLOBAL


def messages(batch: bytes, *buffers: bytes) -> list[bytes]:
    """The pickle of an event with a batch, which its opcodes make."""
    return [b"\x80\x05\x8c\x08messagesK\x00" + batch + b"\x87.", *buffers]


def recording(*contents: list[bytes]) -> bytes:
    result = MAGIC + struct.pack("<Q", VERSION)
    for number, parts in enumerate([[OPENING], *contents]):
        body = struct.pack(f"<{len(parts)}Q", *map(len, parts)) + b"".join(part + b"\0" * (-len(part) % 8) for part in parts)
        head = struct.pack("<QQII", number, len(body), len(parts), zlib.crc32(body))
        result += head + struct.pack("<Q", zlib.crc32(head)) + body
    return result


def stream(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def of_numbers(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": np.zeros(rows, np.int64)})


def doubled(times: int) -> bytes:
    """A list whose every element is a pair of the one before, twice."""
    pairs = b"".join(b"h" + bytes([number]) + b"h" + bytes([number]) + b"\x86\x94" for number in range(times))
    return b"](K\x01\x85\x94" + pairs + b"e"


NESTED = 10**6 * pickle.TUPLE1
NULLS = pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])], ["n"])
WORDS = pa.record_batch({"w": pa.array([None], pa.null()).dictionary_encode()})

ATTACKS: dict[str, list[bytes]] = {
    "a deep time": [b"\x80\x05\x8c\x08messages)" + NESTED + b"]\x87."],
    "a deep key": messages(b"}(" + b")" + NESTED + b"K\x01u"),
    "a deep element of a set": messages(b"\x8f(" + b")" + NESTED + b"\x90"),
    "deep lists": messages(10**6 * b"]" + 10**6 * b"a"),
    "deep through the memo": messages(b")" + b"".join(b"\x85\x94j" + struct.pack("<I", n) for n in range(1000))),
    "a call with a great number": messages(name("builtins", "bytearray") + b"J" + MANY + b"\x85R"),
    "a set of a range": messages(name("builtins", "set") + name("builtins", "range") + b"J" + MANY + b"\x85R\x85R"),
    "an endless range": messages(name("builtins", "range") + b"\x8a\x08" + struct.pack("<q", 2**62) + b"\x85R"),
    "a long number as a decimal": messages(
        name("decimal", "Decimal") + b"\x8b" + struct.pack("<i", 10**6) + 10**6 * b"\x7f" + b"\x85R"
    ),
    "a large memo": messages(b"]r" + struct.pack("<I", 200_000_000)),
    "bytes that are not there": messages(b"B" + struct.pack("<I", 2**31)),
    "many bytes that are not there": messages(b"\x8e" + struct.pack("<Q", 2**40)),
    "a bytearray that is not there": messages(b"\x96" + struct.pack("<Q", 2**31)),
    "pairs of pairs": messages(doubled(60)),
    "a list that holds itself": messages(b"]\x94h\x00a"),
    "an attribute of a class": messages(name("timely.order", "Product") + b"N}\x8c\x06__le__K\x01s\x86b"),
    "a class as a record": messages(b"]" + name("timely.order", "Product") + b"a"),
    "a function's own attribute": messages(name(*ARRAY) + b"N}\x8c\x0c__defaults__)s\x86b"),
    "a compressed batch": messages(name(*BATCH) + b"\x97\x85R", stream(of_numbers(10**6), "zstd")),
    "a batch compressed otherwise": messages(name(*BATCH) + b"\x97\x85R", stream(of_numbers(10**6), "lz4")),
    "rows without bytes": messages(name(*BATCH) + b"\x97\x85R", stream(NULLS)),
    "rows of an array without bytes": messages(name(*ARRAY) + b"(\x8c\x03<f8J" + MANY + b"K\x00\x86\x8c\x01C\x97tR", b""),
    "objects in an array": messages(name(*ARRAY) + b"(\x8c\x02|OK\x08\x85\x8c\x01C\x97tR", b"A" * 64),
    "objects in a record of an array": messages(name(*ARRAY) + b"(]\x8c\x01a\x8c\x02|O\x86aK\x08\x85\x8c\x01C\x97tR", b"A" * 64),
    "objects after numbers in an array": messages(name(*ARRAY) + b"(\x8c\x05|i8,OK\x04\x85\x8c\x01C\x97tR", b"A" * 64),
}

READ = """
import resource, sys
from pathlib import Path
from timely import CaptureError, FileSource
import pyarrow

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        print("read", list(FileSource(path)))
    except CaptureError as error:
        print("refused" if "is damaged" in str(error) and "breaks off in" not in str(error) else error, error.events)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_no_attack_ends_the_process_or_takes_its_memory(tmp_path: Path) -> None:
    """In a process of its own, which some of these ended."""
    for number, attack in enumerate(ATTACKS.values()):
        (tmp_path / f"{number:03}").write_bytes(recording(attack))
    done = subprocess.run([sys.executable, "-c", READ, tmp_path], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    *result, grown = done.stdout.splitlines()
    assert dict(zip(ATTACKS, result, strict=True)) == dict.fromkeys(ATTACKS, "refused 1")
    assert int(grown) < 64  # MiB; single ones took 3 GB


def test_a_file_with_a_hole_is_not_read_into_memory(tmp_path: Path) -> None:
    head = struct.pack("<QQII", 0, 1 << 40, 1, 0)
    with (tmp_path / "hole").open("wb") as file:
        file.write(MAGIC + struct.pack("<Q", VERSION) + head + struct.pack("<Q", zlib.crc32(head)))
        file.truncate(1 << 41)
    with pytest.raises(CaptureError, match="are the most that are read"):
        FileSource[int](tmp_path / "hole").take()


def test_a_number_too_long_to_print_is_an_error_of_the_recording(tmp_path: Path) -> None:
    events: list[Any] = [("progress", 10**5000), ("messages", -(10**5000), []), ("progress", [(10**5000, 1), ("", 1)])]
    for event in events:
        (tmp_path / "file").write_bytes(recording([pickle.dumps(event, 5)]))
        with pytest.raises(CaptureError):
            list(FileSource[int](tmp_path / "file"))


leaves = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=9), st.binary(max_size=9)),
    *(st.dates(), st.datetimes(timezones=st.timezones()).map(str), st.timedeltas(), st.decimals(allow_nan=False), st.uuids()),
    st.builds(Product, st.integers(), st.integers()),
)
keys = st.one_of(leaves, st.tuples(leaves, leaves), st.frozensets(leaves, max_size=3))
plain = st.recursive(
    leaves,
    lambda each: st.one_of(
        st.lists(each, max_size=4),
        st.lists(each, max_size=4).map(tuple),
        st.dictionaries(keys, each, max_size=4),
        st.sets(keys, max_size=4),
        each.map(lambda value: [value, value]),
    ),
    max_leaves=12,
)


SHARED = ("met before and after values that are verified together", (1, 2))


@settings(max_examples=60)
@given(plain)
@example([[0] * 5000, {(number, str(number)) for number in range(300)}])
@example([("shared",) * 3] * 5000)
@example(
    [SHARED, [(str(number), number) for number in range(300)], SHARED, [1.5, "a", None, 2], SHARED[0], {"b": 1, "c": 2}, SHARED]
)
def test_plain_data_is_read_as_it_was_written(value: Any) -> None:
    events = [Progress([(0, 1)]), timely.Messages(0, [value]), Progress([(0, -1)])]
    result = round_trip(events)
    assert result[1].batch == [value]


def round_trip(events: list[Any]) -> Any:
    import multiprocessing

    there, here = multiprocessing.Pipe()
    sink, source = timely.ConnectionSink[int](there), timely.ConnectionSource[int](here)
    collected = []
    for event in events:
        sink.append(event)
        collected.append(source.take())
    return collected


OPCODES = [bytes([code]) for code in range(256)]
LIKELY = [getattr(pickle, each) for each in pickle.__all__ if each.isupper() and isinstance(getattr(pickle, each), bytes)]
NAMES = [name(*ARRAY), name(*BATCH), name("builtins", "range"), name("decimal", "Decimal"), name("timely.order", "Product")]
pieces = st.one_of(
    st.sampled_from(LIKELY),
    st.sampled_from([b"(", b"]", b")", b"}", b"\x8f", b"\x94", b"h\x00", b"h\x01", b"h\x02", b"K\x01", b"\x85", b"\x86", b"N"]),
    st.sampled_from([b"a", b"e", b"s", b"u", b"\x90", b"\x91", b"t", b"R", b"\x81", b"b", b"J" + MANY, b"\x8c\x01a", b"\x97"]),
    st.sampled_from(NAMES),
    st.sampled_from(OPCODES),
    st.binary(max_size=4),
)


@pytest.fixture(autouse=True, scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the first recording of a process imports and compiles is not counted as the memory of another."""
    path = tmp_path_factory.mktemp("loaded") / "recording"
    path.write_bytes(recording(messages(b"](K\x01K\x02e")))
    with contextlib.suppress(CaptureError):  # it has no end
        list(FileSource[int](path))


def check_harmless(parts: list[bytes], path: Path) -> None:
    """Whatever the bytes are: the recording is read or refused, in proportion to its size, and what is read can be used."""
    path.write_bytes(recording(parts))
    size = path.stat().st_size
    tracemalloc.start()
    try:
        collected = []
        try:
            for event in FileSource[Any](path):
                collected.append(event)
        except CaptureError:
            pass
        for event in collected:
            assert event == event
            assert len(repr(event)) < 100_000
        assert tracemalloc.get_traced_memory()[1] < 3_000_000 + 400 * size
    finally:
        tracemalloc.stop()


def edited(written: bytes, changes: list[tuple[float, bytes]]) -> bytes:
    """Put other bytes at some parts of the length of what was written."""
    changed = bytearray(written)
    for where, what in changes:
        at = int(where * len(changed))
        changed[at : at + len(what)] = what
    return bytes(changed)


def places(what: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[tuple[float, bytes]]]:
    return st.lists(st.tuples(st.floats(0, 0.999), what), min_size=1, max_size=5)


STREAMS = [stream(batch) for batch in (of_numbers(5), NULLS.slice(0, 3), WORDS, pa.record_batch({"l": [[1, 2], None]}))]
FUZZED: dict[str, st.SearchStrategy[list[bytes]]] = {
    "opcodes": st.builds(
        lambda opcodes, buffers: messages(b"".join(opcodes), *buffers),
        st.lists(pieces, max_size=40),
        st.lists(st.binary(max_size=20), max_size=2),
    ),
    "changes": st.builds(
        lambda value, changes: [edited(bytes(PlainPickles().pickled(("messages", 0, [value]))[0]), changes)],
        plain,
        places(st.sampled_from([*LIKELY, *OPCODES])),
    ),
    "batches": st.builds(
        lambda written, changes: messages(name(*BATCH) + b"\x97\x85R", edited(written, changes)),
        st.sampled_from(STREAMS),
        places(st.binary(min_size=1, max_size=1)),
    ),
}


def test_what_passes_as_flat_also_passes_opcode_by_opcode() -> None:
    """Each byte of events that one expression recognises is changed, removed or doubled."""
    rows: list[Any] = [("a", 1), ("bc", 2.5), (None,), (True, 70_000, -1)]
    flat = 0
    for content in (("m", 3, rows), ("m", 3, [1, 300, "x", 7]), ("m", 3, [b"y"]), ("p", ((0, -1), (1, 1))), ("p", ((0, 1),))):
        data = pickle.dumps(content, 5)
        assert is_flat(data), content
        for at in range(len(data)):
            for new in (*(bytes([code]) for code in (*b"K]et\x85\x86\x87\x94(h.N", data[at] ^ 1)), b"", data[at : at + 1] * 2):
                changed = data[:at] + new + data[at + 1 :]
                if is_flat(changed):
                    verify(changed)
                    flat += 1
    assert flat > 100  # values that are others now


def test_a_source_that_something_else_reads_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recording").write_bytes(recording(messages(b"](K\x01K\x02e"), messages(b"](K\x03K\x04e")))
    source = FileSource[int](tmp_path / "recording", follow=True)
    with (worker := timely.Worker()).dataflow() as scope:
        scope.replay(source).capture()
    assert source.take() == Progress([(0, 1)])
    with pytest.raises(timely.OperatorError, match="something else reads it too"):
        worker.run()


@pytest.mark.parametrize("kind", FUZZED)
@pytest.mark.parametrize("examples", [150, pytest.param(4_000, marks=pytest.mark.soak)])
def test_any_bytes_are_harmless(kind: str, examples: int, tmp_path: Path) -> None:
    @settings(max_examples=examples)
    @given(FUZZED[kind])
    def check(parts: list[bytes]) -> None:
        check_harmless(parts, tmp_path / "made")

    check()


PREAMBLE = MAGIC + struct.pack("<Q", VERSION)

WRONG_TIMES: list[Any] = [[], "a", None, 1j, np.array([1, 2])]
WRONG_EVENTS: list[Any] = [event for time in WRONG_TIMES for event in (("messages", time, [1]), ("progress", [(time, 1)]))]
WRONG_CHANGES: list[Any] = [None, 5, [5], [(0,)], [(0, "x")], [(0, 1.5)], [(0, None)], {1: 2}]


def file_of(directory: Path, *contents: Any) -> FileSource[Any]:
    path = directory / "made"
    path.write_bytes(
        PREAMBLE + b"".join(b"".join(frame(number, PlainPickles().pickled(content))) for number, content in enumerate(contents))
    )
    return FileSource(path)


OPENED = ("progress", [(0, 1)])


@pytest.mark.parametrize("content", WRONG_EVENTS)
def test_E9_a_time_that_does_not_compare_in_a_file_is_an_error(content: Any, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="does not go with those before") as raised:
        list(file_of(tmp_path, OPENED, content))
    assert raised.value.events == 1
    assert raised.value.frontier == (0,)


@pytest.mark.parametrize("changes", WRONG_CHANGES)
def test_E9_changes_that_are_no_changes_are_an_error(changes: Any, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="pairs of a time and a whole number"):
        Progress(changes)
    for before in ([], [OPENED]):
        with pytest.raises(CaptureError, match="pairs of a time and a whole number") as raised:
            list(file_of(tmp_path, *before, ("progress", changes)))
        assert raised.value.events == len(before)


def test_E9_progress_after_records_in_a_frame_keeps_the_rules_too(tmp_path: Path) -> None:
    source = file_of(tmp_path, OPENED, ("messages", 0, ["a"], [(5, -1)]))
    assert (source.take(), source.take()) == (Progress([(0, 1)]), Messages(0, ["a"]))
    with pytest.raises(CaptureError, match="event 2 counts 5 down below zero; 2 events are good") as raised:
        source.take()
    assert raised.value.frontier == (0,)


def test_E8_times_that_do_not_go_together_open_no_stream() -> None:
    state: StreamState[Any] = StreamState()
    with pytest.raises(CaptureError, match="does not go with those before"):
        state.apply(Progress([("a", 1), (1, 1)]))
    assert (state.events, state.over, state.frontier.elements) == (0, False, ())
    state.apply(Progress([(1, 1)]))
    assert state.frontier.elements == (1,)


@given(
    body=st.one_of(st.binary(max_size=40), st.binary(max_size=24).map(lambda pickled: struct.pack("<Q", len(pickled)) + pickled)),
    pieces=st.sampled_from([0, 1, 2, 3, 10**6]),
)
def test_E9_a_frame_of_anything_at_all_is_an_error(body: bytes, pieces: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("made") / "made"
    head = struct.pack("<QQII", 0, len(body), pieces, zlib.crc32(body))
    path.write_bytes(PREAMBLE + head + struct.pack("<Q", zlib.crc32(head)) + body)
    with pytest.raises(CaptureError, match="is damaged") as raised:
        list(FileSource(path))
    assert (raised.value.events, raised.value.position) == (0, len(PREAMBLE))


def test_a_file_that_breaks_off_is_called_only_that(tmp_path: Path) -> None:
    with pytest.raises(CaptureError) as raised:
        list(file_of(tmp_path, OPENED))
    assert str(raised.value).count("breaks off") == 1
    assert "no recording" not in str(raised.value)


def test_a_writer_that_died_in_its_first_bytes_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "made"
    path.write_bytes(PREAMBLE[:7])
    with pytest.raises(CaptureError, match="breaks off"):
        FileSource(path, follow=True).take()
    path.write_bytes(b"")  # nobody can tell yet: the writer may be about to begin
    assert FileSource(path, follow=True).take() is None
