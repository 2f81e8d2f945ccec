"""``Limits``: bounds of what clients may ask for."""

from __future__ import annotations

import attrs


@attrs.frozen
class Limits:
    """Bounds of what clients may ask for."""

    queries: int = 16
    """Queries that run at one time."""
    query_length: int = 20_000
    """Characters of a query."""
    query_seconds: float = 30.0
    """Seconds that a query may take in one epoch."""
    view_seconds: float = 300.0
    """Seconds of processor time that a view may take in one epoch."""
    query_memory: int | None = None
    """Bytes that all queries may take, each a quarter of what others leave; by default half of what this process may take."""
    rows: int = 100_000
    """Rows of one answer, of one event, or of the result of a query."""
    subscribers: int = 256
    """Clients that follow changes."""
    patience: float = 30.0
    """Seconds for which a client may send nothing of a request, or take nothing of an answer."""
    body: int = 1 << 20
    """Bytes of the body of a request."""
    waiting: int = 16 << 20
    """Bytes of the bodies of all requests that wait to be written."""
    definitions: int = 1000
    """Tables and views."""
    epochs: int = 1000
    """Epochs whose changes are remembered, for clients that come back."""
    changes: int = 100_000
    """Changes of a view that are remembered."""
    replay_seconds: float = 5.0
    """Seconds of computing after which a checkpoint is taken, where there is ``data``: a restart repeats about as much."""
