from typing import TypeAlias

from timely.differential.method_table import ArrangementMethods, CollectionMethods, TraceHandleMethods

ArrangementBase: TypeAlias = ArrangementMethods
CollectionBase: TypeAlias = CollectionMethods
TraceHandleBase: TypeAlias = TraceHandleMethods
