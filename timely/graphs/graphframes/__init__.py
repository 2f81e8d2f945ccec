"""GraphFrames' methods and columns on DataFrames: ``GraphFrame``, motifs, aggregated messages, ``Pregel``.

``timely.graphs.spark`` exports its public names. It may import ``timely.graphs.spark``, ``timely.graphs`` and ``timely.spark``.
"""

import timely.graphs.spark  # noqa: F401  first, since that package exports what is here
