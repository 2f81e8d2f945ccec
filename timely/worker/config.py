"""``Config``: settings that the parts of a program on one worker share by name. Nothing in the library reads any."""

from __future__ import annotations

from typing import Any, TypeVar

V = TypeVar("V")


class Config:
    """The settings of one worker, ``worker.config``.

    >>> import timely
    >>> worker = timely.Worker()
    >>> worker.config.set("batch size", 4096)
    >>> worker.config.get("batch size", int), worker.config.get("batch size", str), worker.config.get("another", int)
    (4096, None, None)
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def set(self, name: str, value: object) -> None:
        """Set the value of ``name``."""
        self._values[name] = value

    def get(self, name: str, kind: type[V]) -> V | None:
        """Return the value of ``name``; ``None`` if there is none, or it is no ``kind``."""
        value = self._values.get(name)
        return value if isinstance(value, kind) else None
