"""Key pairs, made for one run or kept in a credentials file, and the TLS settings for connections between their holders.

Certificates are self-signed: a peer is trusted by its very certificate. Invariant: a connection with these contexts is TLS 1.3,
and its handshake succeeds only between holders of the two identities. No private key is ever printed or logged, and only
``write_credentials`` leaves one on a disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import attrs

from timely.errors import ConfigurationError

_PARTS = re.compile(rb"-----BEGIN (?:[A-Z]+ )?(CERTIFICATE|PRIVATE KEY)-----.*?-----END (?:[A-Z]+ )?\1-----\n?", re.DOTALL)


@attrs.frozen
class Identity:
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes = attrs.field(repr=False)


def make_identity(name: str) -> Identity:
    """Return a new key pair (ECDSA on the curve P-256) and its certificate, whose subject is ``name``.

    The certificate never expires, since clocks of machines differ; its use ends with the run. ``ConfigurationError`` without the
    package ``cryptography``, which only the machine that makes the keys needs.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise ConfigurationError(
            'the keys of a run are made by the package cryptography, which is missing here: pip install "timely-dataflow[spark]"'
        ) from error
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder(subject, subject, private.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))  # "no well-defined expiration date" (RFC 5280, 4.1.2.5)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key = private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Identity(certificate.public_bytes(pem), key)


def write_credentials(path: str) -> None:
    """Write a new identity to a file that only this user may read. ``ConfigurationError`` if the file exists."""
    identity = make_identity("timely host")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(f"the credentials cannot be written: {error}") from error
    with open(descriptor, "wb") as file:
        file.write(identity.certificate + identity.key)


def read_credentials(path: str) -> Identity:
    """Return the identity in a file. ``ConfigurationError`` if it is none, or if other users may read the file."""
    try:
        with open(path, "rb") as file:
            shared = os.fstat(file.fileno()).st_mode & 0o077
            parts = {match[1]: match[0] for match in _PARTS.finditer(file.read())}
        identity = Identity(parts[b"CERTIFICATE"], parts[b"PRIVATE KEY"])
        speaker(identity, identity.certificate)  # reads both
    except (OSError, UnicodeError) as error:  # an ssl.SSLError too
        raise ConfigurationError(f"the credentials in {path} cannot be read: {error}") from error
    except KeyError as error:
        raise ConfigurationError(f"{path} has no certificate with its key: make it by timely credentials FILE") from error
    if shared:
        raise ConfigurationError(f"other users may read the credentials in {path}: chmod 600 {path}")
    return identity


def speaker(own: Identity, trusted: bytes) -> ssl.SSLContext:
    """Return the settings for dialling as ``own`` a holder of the certificate ``trusted``."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, own, trusted)


def listener(own: Identity, trusted: bytes) -> ssl.SSLContext:
    """Return the settings for accepting as ``own`` a holder of the certificate ``trusted``."""
    return _context(ssl.PROTOCOL_TLS_SERVER, own, trusted)


def doorkeeper(context_of: Callable[[str], ssl.SSLContext | None]) -> ssl.SSLContext:
    """Return the settings of a listener that selects others by the TLS server name.

    For a name of which ``context_of`` returns ``None`` the handshake ends before any key is used.
    """

    def choose(sock: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> int | None:
        chosen = None if name is None else context_of(name)
        if chosen is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        sock.context = chosen
        return None

    context = _bare(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = choose
    return context


def _bare(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate, the only trusted one, is the identity
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # no resumption, no replay
    return context


def _context(protocol: int, own: Identity, trusted: bytes) -> ssl.SSLContext:
    context = _bare(protocol)
    context.load_verify_locations(cadata=trusted.decode("ascii"))
    with _as_file(own.certificate + own.key) as path:
        context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield a path at which OpenSSL can read ``content``: in memory where possible, else a file that only this user may read."""
    memory = getattr(os, "memfd_create", None)
    if memory is not None and os.path.isdir("/proc/self/fd"):
        descriptor = memory("timely")
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp()  # with mode 0600
    try:
        os.write(descriptor, content)
        yield path
    finally:
        os.close(descriptor)
        if not path.startswith("/proc/"):
            os.unlink(path)
