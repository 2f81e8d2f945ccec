"""State files: any number of workers reads each item once, in order for each key; damage never goes unnoticed; what is not
written.

White box: a run writes too few blocks to show how they are divided, and reads a file before each byte of it could be damaged.
"""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import timely
from timely.dataflow import OperatorInfo, route
from timely.errors import ChangedDataflowError, CheckpointError
from timely.recovery import MemoryStore, Recovery
from timely.recovery import state_file as module
from timely.recovery.manifest import FileInfo, Layer, Manifest, state_name
from timely.recovery.relations import RelationGraph
from timely.recovery.state_file import Key, StateFile, StateWriter, blocks

KEYS: list[Key] = [(0, "/flow/a#0", 0), (0, "/flow/a#0", 1), (1, "/flow/b#3", 0)]

routes = st.one_of(st.none(), st.integers(-3, 30), st.integers(-(2**70), 2**70))
saved = st.lists(st.tuples(routes, st.integers(0, 9)), max_size=60)


def written(parts: dict[Key, list[Any]]) -> tuple[bytes, StateWriter]:
    """The bytes of a file, and its writer."""
    writer = StateWriter("file")
    return b"".join(writer.chunks(parts.items())), writer


def opened(data: bytes, writer: StateWriter) -> StateFile:
    return StateFile("file", lambda name: io.BytesIO(data), writer.size, writer.digest)


@pytest.fixture(params=[(1 << 15, 1 << 24), (4, 1 << 24), (64, 128)], ids=["large blocks", "small blocks", "many blocks"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much goes into a block, so that few pieces make many of them."""
    block, gathered = request.param
    monkeypatch.setattr(module, "BLOCK", block)
    monkeypatch.setattr(module, "BUFFERED", gathered)


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("peers", [1, 2, 3, 7, 16])
def test_each_item_comes_back_to_one_worker_in_order(peers: int) -> None:
    @given(st.dictionaries(st.sampled_from(KEYS), saved))
    @example({KEYS[0]: [(route % 300, n) for n, route in enumerate(range(0, 5000, 7))]})
    def check(parts: dict[Key, list[Any]]) -> None:
        data, writer = written(parts)
        file = opened(data, writer)
        file.check()
        for key, result in parts.items():
            assert list(file.own(key)) == [item for route, item in result if route is None]
            assert file.has_own(key) == any(route is None for route, _ in result)
            for index in range(peers):
                mine = [(route, item) for route, item in result if route is not None and route % peers == index]
                came = list(file.routed(key, index, peers))
                assert sorted(came) == sorted(item for _, item in mine)
        assert list(file.own((9, "/elsewhere", 0))) == []

    check()


@pytest.mark.usefixtures("sizes")
@given(st.lists(st.integers(0, 5), max_size=200))
def test_the_pieces_of_one_route_stay_in_order(routes: list[int]) -> None:
    data, writer = written({KEYS[0]: [(route, (route, n)) for n, route in enumerate(routes)]})
    file = opened(data, writer)
    for peers in (1, 4):
        for index in range(peers):
            came = list(file.routed(KEYS[0], index, peers))
            for each in set(routes):
                numbers = [n for r, n in came if r == each]
                assert numbers == sorted(numbers)


def test_damage_that_comes_later_is_noticed_before_anything_is_unpickled() -> None:
    class Sentinel:
        def __reduce__(self) -> Any:
            return pytest.fail, ("it was unpickled",)

    content, writer = written({KEYS[0]: [(None, Sentinel())]})
    file = opened(content, writer)
    file._open = lambda name: io.BytesIO(b"\x00" + content[1:])
    with pytest.raises(CheckpointError, match="is damaged: the digest of the"):
        list(file.own(KEYS[0]))


def test_large_items_are_written_one_by_one_and_much_state_in_few_blocks() -> None:
    sizes = [len(data) for *_, data in blocks((n, bytes(6 << 20)) for n in range(6))]
    assert max(sizes) < (25 << 20)
    count = sum(1 for _ in blocks((n, n) for n in range(300_000)))
    assert count < 300


def test_little_more_than_what_is_gathered_is_in_memory() -> None:
    """State as large as several times what is gathered is never held whole, neither while it is written nor while it is read."""

    def state() -> Iterator[tuple[int, bytes]]:
        for n in range(60_000):
            yield n, b"%01000d" % n

    writer = StateWriter("file")
    sink = io.BytesIO()
    for chunk in writer.chunks([(KEYS[0], state())]):
        sink.write(chunk)
    data = sink.getvalue()
    tracemalloc.start()
    try:
        again = StateWriter("file")
        assert sum(map(len, again.chunks([(KEYS[0], state())]))) == len(data)
        assert sum(1 for _ in opened(data, writer).routed(KEYS[0], 0, 2)) == 30_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.8 * len(data)


KEY = (0, "/flow/count#1", 0)
ITEMS: list[tuple[int | None, str]] = [(number, str(number)) for number in range(50)] + [(None, "own")]
MANIFEST = Manifest(
    name="00000001-ab-000000003",
    version="1",
    parent=None,
    time=3,
    notes=[{"a": 1}],
    peers=1,
    dataflows=[{"": RelationGraph("", "", (), ("/flow/count#1",))}],
    layers={KEY: [Layer("00000001-ab-000000003", 1, True, 10)]},
    files={state_name("00000001-0123abcd-00000003", 0): FileInfo(10, "ab")},
)

changes = st.lists(st.tuples(st.floats(0, 0.9999), st.binary(max_size=3)), max_size=3)


def changed(data: bytes, changes: list[tuple[float, bytes]], share: float) -> bytes:
    result = bytearray(data)
    for where, what in changes:
        at = int(where * len(result))
        result[at : at + len(what)] = what
    return bytes(result[: int(share * len(result)) if share < 0.5 else len(result)])


def check_state(edits: list[tuple[float, bytes]], share: float) -> None:
    writer = StateWriter("one")
    written = b"".join(writer.chunks([(KEY, ITEMS)]))
    data = changed(written, edits, share)
    try:
        file = StateFile("one", lambda name: io.BytesIO(data), len(written), writer.digest)
        collected: list[Any] = [*file.routed(KEY, 0, 1), *file.own(KEY)]
    except CheckpointError:
        assert data != written
    else:
        assert collected == [item for _, item in ITEMS]


def check_manifest(edits: list[tuple[float, bytes]], share: float) -> None:
    data = changed(MANIFEST.encode(), edits, share)
    try:
        result = Manifest.decode(data)
    except (CheckpointError, ChangedDataflowError):
        assert data != MANIFEST.encode()
    else:
        assert result == MANIFEST


@given(changes, st.floats(0, 1))
def test_a_changed_state_file_is_refused(edits: list[tuple[float, bytes]], share: float) -> None:
    check_state(edits, share)


@given(changes, st.floats(0, 1))
def test_a_changed_manifest_is_refused(edits: list[tuple[float, bytes]], share: float) -> None:
    check_manifest(edits, share)


@pytest.mark.soak
@pytest.mark.parametrize("check", [check_state, check_manifest])
def test_very_many_changed_files_are_refused(check: Any) -> None:
    settings(max_examples=4_000)(given(changes, st.floats(0, 1))(lambda edits, held: check(edits, held)))()


COUNT = 4000
State = dict[int, bytes]


def build(scope: timely.ScopeBuilder[int], state: Any) -> Any:
    handle, stream = scope.new_input()
    stream.unary_notify(timely.Pipeline, "holds", [], lambda input, output, notificator: None, state=state)
    return handle


def run(
    store: MemoryStore, worker: timely.Worker, changes: list[State], *, again: bool = False, **how: Any
) -> tuple[State, list[int]]:
    """Change the state, with a checkpoint after each change; return it as it was restored, and the bytes that were written.

    ``again``: a checkpoint that fails is taken once more.
    """
    state: State = {}

    def register(info: OperatorInfo) -> None:
        info.register_state(lambda: ((route(key), (key, value)) for key, value in state.items()), state.update)

    with timely.Recovery(worker, store, **how) as recovery:
        with worker.dataflow(int) as scope:
            handle = build(scope, register)
        restored = dict(state)
        start, written = recovery.time or 0, []
        for epoch, change in enumerate(changes, start + 1):
            state.update({key: value for key, value in change.items() if key % worker.peers == worker.index})
            handle.advance_to(epoch)
            try:
                written.append(recovery.checkpoint(epoch).bytes)
            except timely.CheckpointError:
                if not again:
                    raise
                written += [0, recovery.checkpoint(epoch).bytes]
        handle.close()
        worker.run()
    return restored, written


def alone(store: MemoryStore, changes: list[State], **how: Any) -> tuple[State, list[int]]:
    return run(store, timely.Worker(), changes, **how)


def of_all(states: list[tuple[State, list[int]]]) -> State:
    return {key: value for state, _ in states for key, value in state.items()}


WHOLE: State = {key: b"%0200d" % key for key in range(COUNT)}
ONE: list[State] = [{key: b"changed"} for key in range(6)]


def after(changes: int) -> State:
    return WHOLE | dict.fromkeys(range(changes), b"changed")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("later", [1, 3])
def test_only_what_changed_is_written_and_all_of_it_comes_back(workers: int, later: int) -> None:
    store = MemoryStore()
    results = timely.execute(lambda worker: run(store, worker, [WHOLE, *ONE]), workers=workers)
    for _, (first, second, *rest) in results:
        assert first > 200 * COUNT
        assert second > 200 * COUNT  # shares nothing with the one before
        assert max(rest) < first / 5
    assert of_all(timely.execute(lambda worker: run(store, worker, []), workers=later)) == after(6)


def test_a_checkpoint_is_good_when_the_one_after_it_is_not() -> None:
    store = MemoryStore()
    alone(store, [WHOLE, *ONE])
    needed = {
        name: set(json.loads(data.partition(b"\n")[2])["files"]) for name, data in store.files.items() if "manifest" in name
    }
    before, newest = (needed[name] for name in sorted(needed))
    assert before.isdisjoint(newest)
    for name in newest:
        store.files[name] = b"damaged"
    assert alone(store, [])[0] == after(5)


@pytest.mark.parametrize("keep", [1, 3])
def test_a_number_of_checkpoints_stays_and_few_files(keep: int) -> None:
    store = MemoryStore()
    changes: list[State] = [{key: b"%0300d" % key} for key in range(60)]
    alone(store, [WHOLE, *changes], keep=keep)
    names = [name for name in store.names() if name.endswith(".state")]
    assert keep < len(names) <= 16 * keep
    assert sum(len(store.files[name]) for name in names) < 3 * keep * 210 * COUNT
    assert alone(store, [])[0] == {**WHOLE, **{key: value for change in changes for key, value in change.items()}}


def test_every_so_many_checkpoints_are_written_in_full() -> None:
    _, written = alone(MemoryStore(), [WHOLE, *ONE], keep=1, full_every=3)
    assert [size > 200 * COUNT for size in written] == [True, False, False, True, False, False, True]


def test_a_file_that_is_gone_is_not_built_upon() -> None:
    class Losing(MemoryStore):
        def write(self, name: str, chunks: Any) -> None:
            super().write(name, chunks)
            if re.search("-00000001-.*state$", name):
                self.delete(re.sub("-00000001-", "-00000000-", name))

    with pytest.raises(timely.TimelyError, match="00000000-00000.state at .* is gone, and checkpoint .* builds on it"):
        alone(Losing(), [WHOLE, ONE[0]], keep=1)
    store = Losing()
    _, written = alone(store, [WHOLE, *ONE[:3]], keep=1, again=True)
    assert [size > 200 * COUNT for size in written] == [True, False, True, False, False]
    assert alone(store, [])[0] == after(3)


def counting(counts: dict[str, int], calls: list[str]) -> Callable[..., Any]:
    """Return the constructor of an operator that counts words, and logs each new count; ``calls`` has what was asked of it."""

    def constructor(info: OperatorInfo) -> Callable[..., object]:
        def save() -> Any:
            calls.append("save")
            return [(route(word), (word, n)) for word, n in counts.items()]

        def load(items: Any) -> None:
            collected = list(items)
            calls.append(f"load {len(collected)}")
            counts.update(collected)

        def rescale(items: Any) -> None:
            calls.append(f"rescale {len(items)}")

        log = info.register_state(save, load, rescale=rescale, logged=True)

        def logic(input: Any) -> None:
            for _, batch in input:
                for word in batch:
                    counts[word] = counts.get(word, 0) + 1
                    log.append(route(word), (word, counts[word]))

        return logic

    return constructor


def words(where: Path, epochs: int, workers: int = 1, word: str = "") -> tuple[dict[str, int], list[str]]:
    """Count two words an epoch; return the counts, and the calls on worker 0 before and after each checkpoint."""
    calls: list[list[str]] = [[] for _ in range(workers)]

    def program(worker: timely.Worker) -> dict[str, int]:
        counts: dict[str, int] = {}
        with Recovery(worker, where) as recovery:
            with worker.dataflow(name="words") as scope:
                handle, stream = scope.new_input()
                pact = timely.Exchange(lambda word: word)
                stream.sink(pact, "count", counting(counts, calls[worker.index]))
            start = recovery.time or 0
            handle.advance_to(start)
            for epoch in range(start, start + epochs):
                if worker.index == 0:
                    handle.send_batch(["all", f"{word}{epoch % 7}"])
                handle.advance_to(epoch + 1)
                recovery.checkpoint(epoch + 1)
                calls[worker.index].append("checkpoint")
            handle.close()
        return counts

    results = timely.execute(program, workers=workers)
    return {word: n for counts in results for word, n in counts.items()}, calls[0]


def test_a_full_snapshot_is_written_after_sixteen_checkpoints(tmp_path: Path) -> None:
    _, calls = words(tmp_path, 18)
    assert calls == ["checkpoint"] * 16 + ["save"] + ["checkpoint"] * 2
    counts, calls = words(tmp_path, 1)
    assert calls == ["load 10", "checkpoint"]  # eight words in the snapshot, and two changes after it
    assert counts["all"] == 19


def test_a_full_snapshot_is_written_when_the_changes_are_large(tmp_path: Path) -> None:
    _, calls = words(tmp_path, 12, word="x" * 20_000)
    assert calls.index("save") == 4  # the changes of four checkpoints are more than 64 KiB
    assert calls.count("save") == 1  # and the next ones are less than twice the snapshot


def test_a_log_is_restored_on_another_number_of_workers_and_saved_anew(tmp_path: Path) -> None:
    words(tmp_path, 3)
    counts, calls = words(tmp_path, 4)
    assert calls == ["load 6"] + ["checkpoint"] * 4
    assert counts["all"] == 7
    counts, calls = words(tmp_path, 1, workers=3)
    assert calls[1:3] == ["rescale 1", "save"]
    assert counts == {"all": 8, "0": 2} | {f"{n}": 1 for n in range(1, 7)}
