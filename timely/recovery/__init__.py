"""Checkpoints: a run that has died goes on where it was, on as many workers as there are now.

:class:`Recovery` is all that a program needs; its operators register their state with ``OperatorInfo.register_state``. Where
checkpoints lie is a :class:`Store`. Nothing here is imported by ``import timely``, and nothing imports Arrow before a URI asks
for it.
"""

from timely.recovery.recovery import Checkpoint, Recovery
from timely.recovery.store import LocalStore, Store, open_store

__all__ = ["Checkpoint", "LocalStore", "Recovery", "Store", "open_store"]
