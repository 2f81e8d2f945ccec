"""Several runs at one store, step by step: the real ``Recovery`` of each, on a store whose steps the simulation decides.

White box: a protocol with one of its rules switched off (docs/recovery.md, "Runs that overlap") exists nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import pytest

import timely
from tests.support.store_races import Guarantees, StoreRace
from timely.errors import CheckpointError
from timely.recovery import MemoryStore, Recovery, history, ownership, recovery
from timely.recovery.manifest import CLAIM, FENCE, MANIFEST, Fence, records, run_of

Trail = tuple[str, ...]
"""What has come into a run and those that it resumes from, in order."""


def trail(store: Any, worker: timely.Worker | None = None, **how: Any) -> tuple[Recovery, Any, list[str]]:
    """Open a recovery; return it, an input, and the trail. Keyword arguments are those of ``Recovery``."""
    worker = worker or timely.Worker()
    recovery, seen = Recovery(worker, store, **how), list[str]()
    with worker.dataflow(int, name="trail") as scope:
        handle, stream = scope.new_input()

        def constructor(info: timely.OperatorInfo) -> Callable[..., object]:
            log = info.register_state(lambda: [(None, item) for item in seen], seen.extend, logged=True)

            def logic(input: Any) -> None:
                for _, batch in input:
                    seen.extend(batch)
                    for item in batch:
                        log.append(None, item)

            return logic

        stream.sink(timely.Pipeline, "trail", constructor)
    handle.advance_to(recovery.time or 0)
    return recovery, handle, seen


def commit(recovery: Recovery, handle: Any, item: str) -> None:
    """Send one item, and take a checkpoint after it."""
    handle.send(item)
    handle.advance_to(handle.time + 1)
    recovery.checkpoint(handle.time)


class Scene:
    """Runs that take so many checkpoints each, on a store that has ``before``; run 0 has started when the race begins.

    The invariants are checked in each state: what was acknowledged is what a next run starts from, or is before that; so of two
    acknowledged checkpoints one builds on the other.
    """

    def __init__(self, plan: Sequence[int], guarantees: Guarantees, *, before: int = 1, keep: int = 1, **how: Any) -> None:
        self._plan = plan
        self._guarantees = guarantees
        self._keep = keep
        self._how = how
        first = MemoryStore()
        recovery, handle, seen = trail(first, keep=keep)
        for number in range(before):
            commit(recovery, handle, f"before {number}")
        self._first: Trail = tuple(seen)
        self._files = first.files if before else {}
        self._found: dict[frozenset[tuple[str, bytes]], Trail | CheckpointError] = {}
        self.acknowledged: list[Trail] = []

    def make(self, random: Random | None = None) -> StoreRace:
        """Return a new race."""
        self.acknowledged = acknowledged = [self._first]

        def program(store: Any, checkpoints: int) -> None:
            try:
                if store.index == 0:
                    with store.at_once():
                        recovery, handle, seen = trail(store, keep=self._keep)
                else:
                    recovery, handle, seen = trail(store, keep=self._keep)
                for number in range(checkpoints):
                    try:
                        commit(recovery, handle, f"{store.index}.{number}")
                    except CheckpointError as error:
                        if "has taken over" in str(error):
                            raise
                    else:
                        acknowledged.append(tuple(seen))
            except CheckpointError:
                pass

        def runs(checkpoints: int) -> Callable[[Any], None]:
            return lambda store: program(store, checkpoints)

        ranks = None if random is None else random.sample(range(len(self._plan)), len(self._plan))
        how = {"ranks": ranks, **self._how}
        return StoreRace([runs(checkpoints) for checkpoints in self._plan], self._files, self._guarantees, **how)

    def check(self, race: StoreRace) -> None:
        """Start another run from what the store has now."""
        for failure in race.failures():
            raise failure
        files = frozenset(race.files.items())
        if files not in self._found:
            try:
                self._found[files] = tuple(trail(MemoryStore(race.files), keep=self._keep)[2])
            except CheckpointError as error:
                self._found[files] = error
        result = self._found[files]
        for acknowledged in self.acknowledged:
            assert not isinstance(result, CheckpointError), f"{acknowledged} was acknowledged, and then {result}"
            assert result[: len(acknowledged)] == acknowledged, f"{acknowledged} was acknowledged, and next is {result}"


BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}
Break = Callable[[pytest.MonkeyPatch], None]
Ownership, Takeover = ownership.Ownership, ownership.Takeover


def broken(rule: str) -> Callable[[Break], Break]:
    """Register how a rule is switched off."""

    def register(switch_off: Break) -> Break:
        BROKEN[rule] = switch_off
        return switch_off

    return register


@broken("check before the fence")
def _(patch: pytest.MonkeyPatch) -> None:
    def write_fence(self: Any, start: str | None) -> Any:
        self._owner = owner = self._owner or Ownership.claim(self._store)
        owner.write(owner.run + FENCE, [Fence(owner.run, start).encode()])
        return owner, owner.check()

    patch.setattr(Takeover, "_write_fence", write_fence)


@broken("check after the fence")
def _(patch: pytest.MonkeyPatch) -> None:
    def write_fence(self: Any, start: str | None) -> Any:
        self._owner = owner = self._owner or Ownership.claim(self._store)
        if records(owner.check()) != self._read_records():
            return None
        owner.write(owner.run + FENCE, [Fence(owner.run, start).encode()])
        return owner, self._store.names()

    patch.setattr(Takeover, "_write_fence", write_fence)


@broken("read again after the claim")
def _(patch: pytest.MonkeyPatch) -> None:
    def write_fence(self: Any, start: str | None) -> Any:
        self._owner = owner = self._owner or Ownership.claim(self._store)
        owner.check()
        owner.write(owner.run + FENCE, [Fence(owner.run, start).encode()])
        return owner, owner.check()

    patch.setattr(Takeover, "_write_fence", write_fence)


@broken("claim")
def _(patch: pytest.MonkeyPatch) -> None:
    check = Ownership.check

    def blind(self: Any, *, besides: str | None = None) -> list[str]:
        names = self.store.names()
        newer = [run for name in names if name.endswith((FENCE, MANIFEST)) and (run := run_of(name)) and run > self.run]
        return check(self) if newer else names

    patch.setattr(Ownership, "check", blind)


@broken("check before an acknowledgement")
def _(patch: pytest.MonkeyPatch) -> None:
    def commit(self: Any, manifest: Any) -> str:
        self._owner.write(manifest.name + MANIFEST, [manifest.encode()])
        self._names = self._store.names()
        return ""

    patch.setattr(recovery.Recovery, "_commit", commit)


@broken("the own claim is still there")
def _(patch: pytest.MonkeyPatch) -> None:
    def check(self: Any, *, besides: str | None = None) -> list[str]:
        names: list[str] = self.store.names()
        self._refuse(self._newer(names, besides))
        return names

    patch.setattr(Ownership, "check", check)


@broken("marks are deleted oldest first")
def _(patch: pytest.MonkeyPatch) -> None:
    garbage = history.garbage

    def newest_first(*args: Any) -> list[str]:
        return sorted(garbage(*args), key=lambda name: (name.endswith((CLAIM, FENCE)), name), reverse=True)

    patch.setattr(history, "garbage", newest_first)


@broken("a claim is withdrawn only before the fence")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Takeover, "abandon", lambda self: self._owner and self._owner.withdraw())


@broken("what retained checkpoints need is not garbage")
def _(patch: pytest.MonkeyPatch) -> None:
    def garbage(names: Iterable[str], held: Sequence[Any], run: str) -> list[str]:
        mine = {name for manifest in held for name in manifest.files if name.startswith(manifest.name)}
        return [name for name in names if name.endswith(".state") and name not in mine and (run_of(name) or "") <= run]

    patch.setattr(history, "garbage", garbage)
