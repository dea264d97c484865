"""Heartbeats of other machines are not trusted: any joined machine may send any content."""

from __future__ import annotations

import asyncio
import json

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from multi_agent_mcp.hub.heartbeats import Beat, Heartbeats
from multi_agent_mcp.hub.stream import Hub
from multi_agent_mcp.hub.subjects import Names

NAMES = Names("0" * 32)
SINCE = "2026-11-22T10:00:00Z"
SOUND = {"position": 7, "time": 1.0, "queued": 2, "conflicts": 1, "replaced": None, "ends": False}


def heartbeats(heard: list[Beat]) -> Heartbeats:
    own = Beat(position=9, time=1.0)
    return Heartbeats(Hub(NAMES, "desk"), lambda: own, heard.append, lambda: None)


def says(beats: Heartbeats, machine: str, data: bytes) -> None:
    asyncio.run(beats.heard(Msg(Client(), subject=NAMES.heartbeat(machine), data=data)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'"position"',
        json.dumps({**SOUND, "time": float("nan")}).encode(),
        json.dumps({**SOUND, "time": float("inf")}).encode(),
        json.dumps({**SOUND, "position": float("inf")}).encode(),
        json.dumps({**SOUND, "queued": "many"}).encode(),
        json.dumps({**SOUND, "asking": ["worker-a"]}).encode(),
        json.dumps({**SOUND, "asking": 7}).encode(),
        json.dumps({**SOUND, "asking": [{"agent_id": "../x", "topic": None, "since": SINCE}]}).encode(),
        json.dumps({**SOUND, "asking": [{"agent_id": "x", "topic": "\x1b[31m", "since": SINCE}]}).encode(),
        json.dumps({**SOUND, "asking": [{"agent_id": "x", "topic": None, "since": "yesterday"}]}).encode(),
        b'{"position": ' + b"9" * 5000 + b"}",
    ],
)
def test_nonsense_is_passed_over(data: bytes) -> None:
    heard: list[Beat] = []
    beats = heartbeats(heard)
    says(beats, "laptop", data)
    assert (heard, beats.peers) == ([], {})


def test_a_machine_is_there_until_it_says_goodbye_and_does_not_hear_itself() -> None:
    heard: list[Beat] = []
    beats = heartbeats(heard)
    says(beats, "desk", json.dumps(SOUND).encode())
    assert heard == []
    says(beats, "laptop", json.dumps(SOUND).encode())
    assert beats.is_up("laptop")
    state = beats.peers["laptop"].as_answer(position=9)
    assert (state["behind"], state["queued"], state["conflicts"]) == (2, 2, 1)
    says(beats, "laptop", json.dumps({**SOUND, "ends": True}).encode())
    assert not beats.is_up("laptop")
    assert "queued" not in beats.peers["laptop"].as_answer(position=9)


def test_an_older_program_counts_nothing() -> None:
    heard: list[Beat] = []
    says(heartbeats(heard), "laptop", json.dumps({"position": 7, "last": 5, "time": 1.0, "replaced": None}).encode())
    assert heard == [Beat(position=7, time=1.0)]


def test_who_is_asked_something_there_is_known_as_long_as_it_is_there() -> None:
    asked = {"agent_id": "worker-a", "topic": "permission", "since": "2026-11-22T10:00:00.000000Z", "dialog_id": None}
    beats = heartbeats([])
    beat = Beat.parse(json.dumps({**SOUND, "asking": [asked]}).encode())
    says(beats, "laptop", json.dumps(beat.as_json()).encode())
    assert list(beats.peers["laptop"].as_answer(position=9)["asking"]) == [asked]
    says(beats, "laptop", json.dumps({**SOUND, "ends": True}).encode())
    assert "asking" not in beats.peers["laptop"].as_answer(position=9)
