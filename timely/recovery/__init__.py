"""Checkpoints and recovery: a run that died resumes from its last checkpoint, on any number of workers.

Programs use :class:`Recovery`; operators declare their state with ``OperatorInfo.register_state``. Checkpoints are
stored in a :class:`Store`. PyArrow is imported only for a URI.
"""

from timely.recovery.recovery import Checkpoint, Recovery
from timely.recovery.relations import Comparison
from timely.recovery.store import ArrowStore, LocalStore, MemoryStore, Store, open_store

__all__ = ["ArrowStore", "Checkpoint", "Comparison", "LocalStore", "MemoryStore", "Recovery", "Store", "open_store"]
