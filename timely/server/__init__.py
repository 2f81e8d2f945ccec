"""A server of views: SQL over tables that change, read by HTTP at complete times. Needs the extra ``serve``."""

from timely.errors import ConfigurationError

try:
    from timely.server.contents import EpochChanges, RowCondition
    from timely.server.live_query import Query
    from timely.server.served_connectors import Connectors
    from timely.server.served_relations import Answer, Limits, ViewDescription
    from timely.server.view_server import ViewServer
    from timely.server.views import Views
    from timely.server.watcher import InputWatcher, WatchedInput
except ModuleNotFoundError as error:
    raise ConfigurationError(f'timely.server needs the package {error.name}: pip install "timely-dataflow[serve]"') from error

__all__ = [
    "Answer",
    "Connectors",
    "RowCondition",
    "ViewDescription",
    "EpochChanges",
    "InputWatcher",
    "Limits",
    "Query",
    "ViewServer",
    "Views",
    "WatchedInput",
]
