"""What has not changed since an earlier checkpoint is not written again, and no checkpoint shares it with the one before."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import timely
from timely.dataflow import OperatorInfo, route
from timely.recovery import MemoryStore

KEYS = 4000
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


WHOLE: State = {key: b"%0200d" % key for key in range(KEYS)}
ONE: list[State] = [{key: b"changed"} for key in range(6)]


def after(changes: int) -> State:
    return WHOLE | dict.fromkeys(range(changes), b"changed")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("later", [1, 3])
def test_only_what_changed_is_written_and_all_of_it_comes_back(workers: int, later: int) -> None:
    store = MemoryStore()
    results = timely.execute(lambda worker: run(store, worker, [WHOLE, *ONE]), workers=workers)
    for _, (first, second, *rest) in results:
        assert first > 200 * KEYS
        assert second > 200 * KEYS  # shares nothing with the one before
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
    assert sum(len(store.files[name]) for name in names) < 3 * keep * 210 * KEYS
    assert alone(store, [])[0] == {**WHOLE, **{key: value for change in changes for key, value in change.items()}}


def test_every_so_many_checkpoints_are_written_in_full() -> None:
    _, written = alone(MemoryStore(), [WHOLE, *ONE], keep=1, full_every=3)
    assert [size > 200 * KEYS for size in written] == [True, False, False, True, False, False, True]


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
    assert [size > 200 * KEYS for size in written] == [True, False, True, False, False]
    assert alone(store, [])[0] == after(3)
