"""nkeys: the Ed25519 keys by which NATS knows its users (https://docs.nats.io/running-a-nats-service/nkeys)."""

from __future__ import annotations

import os

import nkeys


def new_seed() -> str:
    """The secret half, as text."""
    return bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)).decode()


def public_of(seed: str) -> str:
    """The public half, which the server is told."""
    return bytes(nkeys.from_seed(bytearray(seed.encode())).public_key).decode()
