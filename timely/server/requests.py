"""What clients ask a server to change: a request is checked, decided, and happens in one epoch; one with a key happens once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import attrs

from timely.errors import ConfigurationError, IdempotencyError
from timely.server.contents import Row
from timely.server.served_relations import Decision

DAY: Final = 86_400.0
"""Seconds for which a key is remembered."""
MOST: Final = 100_000
"""Keys that are remembered."""
_LONGEST: Final = 256


class RequestKey(NamedTuple):
    """Digests of the key that a client gave, and of what it asked for."""

    key: bytes
    content: bytes

    @classmethod
    def of(cls, key: str | None, content: object) -> RequestKey | None:
        """Return the digests; the ``repr`` of the content says what it is."""
        if key is None:
            return None
        if not 0 < len(key) <= _LONGEST:
            raise ConfigurationError(f"an idempotency key has 1 to {_LONGEST} characters, and not {len(key)}")
        return cls(_digest(key), _digest(repr(content)))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).digest()


@attrs.frozen(eq=False)
class Request:
    """A change. ``prepare`` returns what is decided, after earlier changes of its epoch, or raises why it is refused."""

    prepare: Callable[[Mapping[str, Mapping[Row, int]]], Decision]
    key: RequestKey | None = None


class NotedKey(NamedTuple):
    """The key of a request that has happened: in which epoch, and when."""

    key: RequestKey
    epoch: int
    seconds: float


class RequestKeys:
    """The keys of the requests of a day, up to 100,000.

    >>> keys, key = RequestKeys(), RequestKey.of("mine", {"t": []})
    >>> keys.first(key)
    >>> keys.note(key, 7, 0.0)
    >>> keys.first(key)
    7
    >>> keys.first(RequestKey.of("mine", {"t": [1]}))
    Traceback (most recent call last):
    timely.errors.IdempotencyError: this key was that of another request, in epoch 7: give each request a key of its own
    """

    def __init__(self) -> None:
        self._noted: OrderedDict[bytes, NotedKey] = OrderedDict()

    def first(self, key: RequestKey | None) -> int | None:
        """Return the epoch in which a request has happened already."""
        noted = None if key is None else self._noted.get(key.key)
        if noted is None:
            return None
        if noted.key != key:
            raise IdempotencyError(
                f"this key was that of another request, in epoch {noted.epoch}: give each request a key of its own"
            )
        return noted.epoch

    def note(self, key: RequestKey | None, epoch: int, seconds: float) -> None:
        if key is None:
            return
        self._noted[key.key] = NotedKey(key, epoch, seconds)
        while len(self._noted) > MOST or next(iter(self._noted.values())).seconds < seconds - DAY:
            self._noted.popitem(last=False)

    def since(self, epoch: int) -> Iterator[NotedKey]:
        """Yield the keys of later epochs."""
        return (noted for noted in self._noted.values() if noted.epoch > epoch)
