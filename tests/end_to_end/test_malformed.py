"""Lines that are not messages: the requester gets an answer, and the server continues (JSON-RPC 2.0, section 5.1)."""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any

from tests.end_to_end.support import Team
from tests.end_to_end.wire import PAGE, SET_PIPE_SIZE, Wire, call, request, wire

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, METHOD_NOT_FOUND = -32700, -32600, -32602, -32601
MEBIBYTE = 1 << 20

Answers = list[tuple[object, int]]
"""The answers to a line: the id and the code of each error."""


def _sending(content: bytes) -> bytes:
    """A message whose content is this JSON."""
    head = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "send_message", "arguments": '
    return head + b'{"receiver_id": "admin", "content": ' + content + b"}}}"


def _pinging(request_id: bytes) -> bytes:
    return b'{"jsonrpc": "2.0", "id": ' + request_id + b', "method": "ping"}'


UNREADABLE: dict[str, tuple[bytes, Answers]] = {
    "a cut emoji": (_sending(b'"\\ud83d"'), [(7, PARSE_ERROR)]),
    "the other half of an emoji": (_sending(b'"\\ude00"'), [(7, PARSE_ERROR)]),
    "an integer of 5 000 digits": (_sending(b"9" * 5_000), [(7, PARSE_ERROR)]),
    "5 000 levels of lists": (_sending(b"[" * 5_000 + b"]" * 5_000), [(7, PARSE_ERROR)]),
    "5 000 levels of objects": (_sending(b'{"id":' * 5_000 + b"1" + b"}" * 5_000), [(7, PARSE_ERROR)]),
    "bytes that are no UTF-8": (_sending(b'"\xff\xfe"'), [(7, PARSE_ERROR)]),
    "a control character": (_sending(b'"\x01"'), [(7, PARSE_ERROR)]),
    "NaN": (_sending(b"NaN"), [(7, PARSE_ERROR)]),
    "the id behind what is broken": (b'{"params": [\xff, {"id": 1}, "\\"id\\": 2"], "id": "x"}', [("x", PARSE_ERROR)]),
    "cut short": (b'{"jsonrpc": "2.0", "id": 8, "method": "tools/li', [(8, PARSE_ERROR)]),
    "cut short in words that look like an id": (b'{"params": {"content": "say \\"id\\": 5', [(None, PARSE_ERROR)]),
    "cut short in its id": (b'{"jsonrpc": "2.0", "id": "8', [(None, PARSE_ERROR)]),
    "no JSON": (b"hello", [(None, PARSE_ERROR)]),
    "two messages in a line": (_pinging(b"9") * 2, [(9, PARSE_ERROR)]),
    "an id of 5 000 digits": (_pinging(b"9" * 5_000), [(None, PARSE_ERROR)]),
    "a million brackets": (b"[" * MEBIBYTE, [(None, PARSE_ERROR)]),
    "an HTTP request": (b"GET / HTTP/1.1\r", [(None, PARSE_ERROR)]),
}
NO_REQUEST: dict[str, tuple[bytes, Answers]] = {
    "a batch": (
        b"[" + _pinging(b"1") + b", " + _pinging(b'"b"') + b"]",
        [(1, INVALID_REQUEST), ("b", INVALID_REQUEST)],
    ),
    "an empty batch": (b"[]", [(None, INVALID_REQUEST)]),
    "a batch of nothing": (b"[1, null]", [(None, INVALID_REQUEST)]),
    "a number": (b"17", [(None, INVALID_REQUEST)]),
    "null": (b"null", [(None, INVALID_REQUEST)]),
    "an empty object": (b"{}", [(None, INVALID_REQUEST)]),
    "no method": (b'{"jsonrpc": "2.0", "id": 3}', [(3, INVALID_REQUEST)]),
    "a method that is no name": (b'{"jsonrpc": "2.0", "id": 3, "method": 5}', [(3, INVALID_REQUEST)]),
    "no method that is no name": (b'{"jsonrpc": "2.0", "method": 5}', [(None, INVALID_REQUEST)]),
    "another JSON-RPC": (b'{"jsonrpc": "1.0", "id": 3, "method": "ping"}', [(3, INVALID_REQUEST)]),
    "no version": (b'{"id": 3, "method": "ping"}', [(3, INVALID_REQUEST)]),
    "an id with a fraction": (_pinging(b"1.5"), [(1.5, INVALID_REQUEST)]),
    "an id of null": (_pinging(b"null"), [(None, INVALID_REQUEST)]),
    "an id of true": (_pinging(b"true"), [(None, INVALID_REQUEST)]),
    "an endless id": (_pinging(b"1e999"), [(None, INVALID_REQUEST)]),
    "an id that is a list": (_pinging(b"[1]"), [(None, INVALID_REQUEST)]),
    "positional params": (b'{"jsonrpc": "2.0", "id": 4, "method": "ping", "params": [1]}', [(4, INVALID_PARAMS)]),
    "params that are words": (b'{"jsonrpc": "2.0", "id": 4, "method": "ping", "params": "x"}', [(4, INVALID_PARAMS)]),
    "a call without a name": (request(5, "tools/call"), [(5, INVALID_PARAMS)]),
    "a call with a list": (request(5, "tools/call", name="list_agents", arguments=[1]), [(5, INVALID_PARAMS)]),
    "an unknown tool": (request(5, "tools/call", name="no\nsuch"), [(5, INVALID_PARAMS)]),
    "an unknown method": (request(5, "no/such"), [(5, METHOD_NOT_FOUND)]),
    "meta that is none": (request(5, "tools/call", name="list_agents", _meta=5), [(5, INVALID_PARAMS)]),
}
NOBODY_ASKED: dict[str, bytes] = {
    "an empty line": b"",
    "blanks": b" \t\r",
    "a response": b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
    "an error": b'{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "x"}}',
    "a response that is none": b'{"jsonrpc": "2.0", "id": 1, "result": 5}',
    "an error that is none": b'{"jsonrpc": "2.0", "id": 1, "error": 5}',
    "a notification with positional params": b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]}',
    "a notification with words for params": b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": "x"}',
    "progress without a token": b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}',
    "an unknown notification": b'{"jsonrpc": "2.0", "method": "no/such"}',
    "progress of nothing": b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}}',
}
STRANGE_IDS: list[Any] = [0, -1, 10**40, "", "7", "9" * 5_000, "日本語 \u0000 \U0001f600", "null"]


def _answers(host: Wire, line: bytes) -> Answers:
    """Returns the answers to a line, after checking that the server also answers a subsequent request."""
    host.say(line, request("then"))
    messages = host.heard_until("then")
    if not messages and line not in NOBODY_ASKED.values():  # answers may overtake each other
        messages.append(host.hear())
    assert all(message["error"]["message"].strip() for message in messages)
    return [(message["id"], message["error"]["code"]) for message in messages]


def test_every_line_that_is_no_request_is_answered_with_the_id_that_can_be_seen_in_it(team: Team) -> None:
    with wire(team) as host:
        answered = {name: _answers(host, line) for name, (line, _) in {**UNREADABLE, **NO_REQUEST}.items()}
        assert answered == {name: answers for name, (_, answers) in {**UNREADABLE, **NO_REQUEST}.items()}
        assert team.unread("admin") == []
        assert host.call("send_message", receiver_id="admin", content="goes on").done


def test_a_call_that_cannot_be_one_is_told_what_is_wrong(team: Team) -> None:
    with wire(team) as host:
        for params, words in (
            ({}, "params.name: Field required"),
            ({"arguments": {}}, "params.name: Field required"),
            ({"name": 5}, "params.name: Input should be a valid string"),
            ({"name": "list_agents", "arguments": [1]}, "params.arguments: Input should be a valid dictionary"),
        ):
            host.say(request(5, "tools/call", **params))
            error = host.hear()["error"]
            assert (error["code"], words in error["message"]) == (INVALID_PARAMS, True), error
        host.say(b'{"jsonrpc": "2.0", "id": 6, "method": "tools/call"}')
        assert "params.name" in host.hear()["error"]["message"]


def test_what_asks_for_nothing_is_answered_by_nothing(team: Team) -> None:
    with wire(team) as host:
        assert {name: _answers(host, line) for name, line in NOBODY_ASKED.items()} == {
            name: [] for name in NOBODY_ASKED
        }


def test_half_an_emoji_is_answered_with_what_to_write_instead(team: Team) -> None:
    with wire(team) as host:
        for half in (rb"\ud83d", rb"cut here \uD83D", rb"\ude00 first", rb"\ud83d\u0041"):
            host.say(_sending(b'"' + half + b'"'))
            assert "write the whole emoji" in host.hear()["error"]["message"], half
        host.say(_sending(rb'"\ud83"'))  # cut elsewhere
        assert "emoji" not in host.hear()["error"]["message"]
        assert host.call("send_message", receiver_id="admin", content="\U0001f600").done


def test_ids_come_back_as_they_were_also_the_same_one_twice(team: Team) -> None:
    with wire(team) as host:
        for number in STRANGE_IDS:
            host.say(call(number, "list_agents"))
            assert host.hear()["id"] == number
        host.say(call(1, "list_agents"), call(1, "get_unread_count"))
        results = [host.hear()["result"]["structuredContent"] for _ in range(2)]
        assert sorted("agents" in result for result in results) == [False, True]


def test_a_line_of_tens_of_megabytes_is_answered_and_not_kept(team: Team) -> None:
    with wire(team) as host:
        host.say(_sending(b'"' + b"x" * (30 * MEBIBYTE) + b'"'))
        assert host.hear()["result"]["structuredContent"]["error"] == "content_too_large"
        host.say(_sending(b'"' + b"x" * (65 * MEBIBYTE) + b'"'))
        answer = host.hear()
        assert (answer["id"], answer["error"]["code"]) == (7, INVALID_REQUEST)
        assert host.call("list_agents").done


def test_no_error_repeats_megabytes_of_what_was_asked(team: Team) -> None:
    giant = "x" * (5 * MEBIBYTE)
    asked = {
        "an unknown tool": request(7, "tools/call", name=giant),
        "an unknown method": request(7, giant),
        "an unknown argument": call(7, "list_agents", **{giant: giant}),
        "an unknown message": call(7, "get_message_status", message_id=giant),
        "a tool whose name is a list": request(7, "tools/call", name=[giant]),
        "a page of the tools": request(7, "tools/list", cursor=giant),
        "arguments that are words": request(7, "tools/call", name="list_agents", arguments=giant),
        "a version of the protocol": request(7, "initialize", protocolVersion=giant, capabilities={}, clientInfo={}),
        "params with another name": request(7, "ping", **{giant: giant}),
        "a member with another name": b'{"jsonrpc": "2.0", "id": 7, "%s": 1}' % giant.encode(),
        "a line that is no JSON": b'{"jsonrpc": "2.0", "id": 7, "method": "%s"' % giant.encode(),
    }
    with wire(team) as host:
        long = {}
        for name, line in asked.items():
            host.say(line)
            told = json.dumps(host.hear(), ensure_ascii=False)
            if "tools/list" not in line.decode()[:80] and len(told) > 2 * 9_000:  # once as text, once structured
                long[name] = len(told)
        assert long == {}


def test_a_host_that_hears_nothing_of_its_errors_still_ends_the_server(team: Team) -> None:
    with wire(team) as host:
        host.narrow()
        host.say(*[b"hello"] * 1_000)
        assert host.process.stdin is not None
        host.process.stdin.close()
        host.process.wait(60)
        assert host.process.returncode == 0


def test_a_host_that_never_reads_the_log_is_answered_all_the_same(team: Team) -> None:
    unread_log = team.base / "log"
    os.mkfifo(unread_log)
    reading = os.open(unread_log, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reading, SET_PIPE_SIZE, PAGE)
    where = ["--root", str(team.root), "--session", team.session, "--agent", "worker-a"]
    host = Wire(team.env, unread_log, where)
    try:
        logged = b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"reason": 5}}'
        host.say(*[logged] * 200, request("then"))
        assert host.heard_until("then") == []
        host.end()
        assert os.read(reading, PAGE).startswith(b"multi-agent-mcp: ")
    finally:
        host.kill()
        os.close(reading)
