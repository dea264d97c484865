"""The possible contents of a disk after a power cut at a moment of the log."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.powercut.recorder import ACKNOWLEDGED, FLUSHED, RECORD, WRITTEN, Record

SECTOR = 512
"""The number of bytes that a drive writes atomically."""


class Loss(NamedTuple):
    """The fate of writes that were not flushed: the probability that one survives, and whether one of them is torn."""

    name: str
    survives: float
    torn: bool = False


LOSSES = (
    Loss("everything survives", 1.0),
    Loss("nothing survives", 0.0),
    Loss("some survive, in any order", 0.5),
    Loss("some survive, one is cut off", 0.5, torn=True),
)


@dataclass(frozen=True)
class Cut:
    """The disk after the power came back, and what had been acknowledged before it went."""

    moment: int
    loss: str
    unflushed: int
    image: bytearray
    acknowledged: list[dict[str, Any]]


def records(log: Path) -> Iterator[Record]:
    """The whole records of a log."""
    with log.open("rb") as file:
        while len(head := file.read(RECORD.size)) == RECORD.size:
            kind, offset, length = RECORD.unpack(head)
            data = file.read(length)
            if len(data) == length:
                yield Record(kind, offset, data)


def moments_at_stake(log: Path) -> list[int]:
    """The moments after a write that was not followed by a flush, from the first acknowledgement on. At every other
    moment the disk equals that at one of these."""
    found: list[int] = []
    begun, was_write = False, False
    for moment, record in enumerate(records(log)):
        if begun and was_write:
            found.append(moment)
        begun, was_write = begun or record.kind == ACKNOWLEDGED, record.kind == WRITTEN
    return found


def cuts(image: bytes, log: Path, count: int, chance: random.Random) -> Iterator[Cut]:
    """`count` cuts, in order of time."""
    moments = sorted(chance.sample(moments_at_stake(log), count))
    durable, unflushed, acknowledged = bytearray(image), list[Record](), list[dict[str, Any]]()
    for moment, record in enumerate(records(log)):
        if moments and moment == moments[0]:
            del moments[0]
            loss = chance.choice(LOSSES)
            yield Cut(moment, loss.name, len(unflushed), _left(durable, unflushed, loss, chance), list(acknowledged))
        if record.kind == WRITTEN:
            unflushed.append(record)
        elif record.kind == FLUSHED:
            for written in unflushed:
                _put(durable, written)
            unflushed.clear()
        elif record.kind == ACKNOWLEDGED:
            acknowledged.append(json.loads(record.data))


def _left(durable: bytearray, unflushed: list[Record], loss: Loss, chance: random.Random) -> bytearray:
    image = bytearray(durable)
    survivors = [written for written in unflushed if chance.random() < loss.survives]
    if loss.torn and survivors:
        number = chance.randrange(len(survivors))
        cut_off = survivors[number]
        kept = chance.randrange(len(cut_off.data) // SECTOR + 1) * SECTOR
        survivors[number] = cut_off._replace(data=cut_off.data[:kept])
    for written in survivors:
        _put(image, written)
    return image


def _put(image: bytearray, written: Record) -> None:
    image[written.offset : written.offset + len(written.data)] = written.data
