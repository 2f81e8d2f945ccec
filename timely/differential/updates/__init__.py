"""Updates, and what carries them: batches of rows, of whole numbers and of Arrow columns, and rings to count in.

Nothing here keeps history or reads a trace. It may import ``timely.operators`` and below, and no other wing.
"""
