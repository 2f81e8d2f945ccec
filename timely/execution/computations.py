"""Operators that compute when their run is over: no message reaches them, so an interruption is raised in their threads."""

from __future__ import annotations

import contextlib
import threading
from typing import Final

from timely.dataflow import Operator
from timely.monitor.local_workers import LocalWorkers, Member

PAUSE: Final = 0.3
"""Seconds in which an operator may end by itself."""


def interrupt_operators(local: LocalWorkers) -> None:
    """Raise ``KeyboardInterrupt`` in each thread of another worker of this process whose operator computes, once.

    A call that is not Python's has to return first.
    """
    with contextlib.suppress(ImportError):  # some Pythons are built without it
        import ctypes

        for member in tuple(local.members):
            if member.thread not in (None, threading.get_ident()) and _computes(member):
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(member.thread), ctypes.py_object(KeyboardInterrupt))


def _computes(member: Member) -> bool:
    children = (child.scope for scope in member.worker.scopes for nested in scope.scopes for child in nested.children)
    return any(isinstance(scope, Operator) and scope.running for scope in children)
