"""State files: any number of workers reads each item once, in order for each key; damage never goes unnoticed.

White box: a run writes too few blocks to show how they are divided, and reads a file before each byte of it could be damaged.
"""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timely.errors import CheckpointError
from timely.recovery import state_file as module
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
            for route in set(routes):
                numbers = [n for r, n in came if r == route]
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
