"""Secrets we hand out: made here, kept as SHA-256 only (they are random, so no slow hash is needed)."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

TOKEN_SCHEME = "pst"  # noqa: S105 (the beginning of every token)


@dataclass(frozen=True)
class NewToken:
    prefix: str
    secret: str


def new_token() -> NewToken:
    prefix = secrets.token_hex(4)
    return NewToken(prefix=prefix, secret=f"{TOKEN_SCHEME}_{prefix}_{secrets.token_hex(32)}")


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def csrf_token_of(session_secret: str) -> str:
    """Derived, so that a reloaded page gets it again although only hashes are kept."""
    mac = hmac.new(session_secret.encode(), b"penstock-csrf-1", hashlib.sha256).digest()
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def is_match(secret: str, expected_hash: str) -> bool:
    return hmac.compare_digest(hash_of(secret), expected_hash)
