"""Requests of the hub's administrator."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.hub import administration
from multi_agent_mcp.hub.administration import make_streams
from multi_agent_mcp.hub.subjects import Names

BUSY = {"error": {"err_code": 10077, "description": "error creating store for stream"}}


class RefusingClient:
    """A connection to a server that gives these answers, and then accepts everything."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = [*answers]
        self.created: list[str] = []

    async def request(self, subject: str, *_: object, **__: object) -> SimpleNamespace:
        answer = self.answers.pop(0) if self.answers else {}
        if not answer:
            self.created.append(subject.rpartition(".")[2])
        return SimpleNamespace(data=json.dumps(answer).encode())


def made(client: RefusingClient) -> list[str]:
    asyncio.run(make_streams(cast("Any", client), Names("0" * 32), "identity"))
    return client.created


def test_a_stream_whose_old_files_are_still_being_removed_is_asked_for_again() -> None:
    names = Names("0" * 32)
    assert made(RefusingClient(BUSY, BUSY)) == [*names.streams, names.beat_stream]


@pytest.mark.parametrize("words", ["insufficient resources", BUSY["error"]["description"]])
def test_other_refusals_and_lasting_ones_are_told(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setattr(administration, "CREATE_SECONDS", 0.0)
    with pytest.raises(HubUnreachable) as refused:
        made(RefusingClient(*[{"error": {"err_code": 1, "description": words}}] * 9))
    assert refused.value.values["words"] == words
