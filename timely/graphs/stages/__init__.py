"""Stages that the algorithms share: edges as input, numbers for nodes, rows gathered by round, joins with nodes.

Results do not depend on the number of workers. They may import ``timely.graphs.structures``.
"""
