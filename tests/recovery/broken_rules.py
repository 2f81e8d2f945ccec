"""Recovery with one rule of its protocol switched off each (docs/recovery.md, "Runs that overlap").

White box: a protocol that lacks a rule exists nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from timely.recovery import history, ownership, recovery
from timely.recovery.manifest import CLAIM, FENCE, MANIFEST, Fence, records, run_of

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
