"""Operators by key: aggregates, groups, joins, windows and state machines, by record and by column.

Equal keys meet at one worker, whatever their type. It may import the operators beside it.
"""
