"""A server of views: SQL over tables that change, read by HTTP at complete times. Needs the extra ``serve``."""

from timely.server.contents import Condition, EpochChanges
from timely.server.serving import ViewServer
from timely.server.views import Answer, Description, Limits, Query, Views
from timely.server.watcher import InputWatcher, WatchedInput

__all__ = [
    "Answer",
    "Condition",
    "Description",
    "EpochChanges",
    "InputWatcher",
    "Limits",
    "Query",
    "ViewServer",
    "Views",
    "WatchedInput",
]
