"""nkeys, the Ed25519 keys that identify users of NATS (https://docs.nats.io/running-a-nats-service/nkeys)."""

from __future__ import annotations

import os

import nkeys


def new_seed() -> str:
    """Returns the secret half of a new key, as text."""
    return bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)).decode()


def public_of(seed: str) -> str:
    """Returns the public half, which the server is given."""
    return bytes(nkeys.from_seed(bytearray(seed.encode())).public_key).decode()
