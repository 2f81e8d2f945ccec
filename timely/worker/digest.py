"""``digest``: a short checksum, the same in every process and on every machine.

``hashlib`` loads OpenSSL, which takes each process of a run 4 ms; ``_blake2`` does not.
"""

from __future__ import annotations


def digest(text: str) -> bytes:
    """Return 16 bytes for a text.

    >>> digest("a") == digest("a"), digest("a") == digest("b"), len(digest(""))
    (True, False, 16)
    """
    try:
        from _blake2 import blake2b
    except ImportError:  # other Pythons have it elsewhere
        from hashlib import blake2b
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()  # file names may contain them
