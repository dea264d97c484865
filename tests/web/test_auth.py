"""Access: the link, the cookie, and the checks before every request."""

from __future__ import annotations

import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.end_to_end.quiet import quiet_environment
from tests.end_to_end.support import Team, wait_until
from tests.web.support import Visitor, Web


def _listens(port: int | None) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """One console for all tests that change nothing."""
    base = tmp_path_factory.mktemp("standing")
    with Web(Team(base, quiet_environment(base)).make()) as started:
        yield started


@pytest.fixture(scope="module")
def caller(standing: Web) -> Visitor:
    """Somebody who entered it by the link."""
    return standing.visitor()


def test_the_link_opens_the_console_once(web: Web) -> None:
    path = web.link.removeprefix(web.address)
    assert web.stranger().get(path).status == 303
    again = web.stranger().get(path)
    assert again.status == 403
    assert "set-cookie" not in again.headers


def test_a_look_at_the_link_does_not_use_it_up(web: Web) -> None:
    reply = web.stranger().head(web.link.removeprefix(web.address))
    assert (reply.status, reply.headers["allow"]) == (405, "GET")
    assert web.visitor().see("/session")["session"] == "demo"


def test_a_cookie_is_for_our_pages_and_our_server_only(web: Web) -> None:
    cookie = web.stranger().get(web.link.removeprefix(web.address)).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_guessed_ticket_is_refused_and_leaves_the_true_one_good(web: Web) -> None:
    for ticket in ("", "x", "%C3%A9", "%00", "..%2f", "A" * 5000):
        assert web.stranger().get(f"/open?ticket={ticket}").status == 403, ticket
    assert web.visitor().see("/session")["session"] == "demo"


def test_without_a_cookie_nothing_is_shown(standing: Web) -> None:
    for path in ("/", "/messages", "/api/session", "/api/tasks", "/api/events", "/timeline.svg"):
        reply = standing.stranger().get(path)
        assert reply.status == 401, path
        assert "worker-a" not in reply.text, path


def test_a_browser_asks_each_time_whether_its_copy_of_a_module_is_still_right(caller: Visitor) -> None:
    first = caller.get("/static/core.js")
    assert first.headers["cache-control"] == "no-cache"
    assert caller.get("/static/core.js", If_None_Match=first.headers["etag"]).status == 304


def test_a_made_up_cookie_is_refused(standing: Web, caller: Visitor) -> None:
    (name,) = caller.cookies
    for cookie in ("", "x", "1.2.3", "9999999999.abc." + "0" * 64):
        assert Visitor(standing.address, {name: cookie}).get("/api/session").status == 401, cookie


def test_a_name_that_was_bound_to_our_address_is_refused(caller: Visitor) -> None:
    for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80", ""):
        assert caller.get("/api/session", Host=host).status == 421, host


def test_the_other_names_of_this_machine_are_ours(standing: Web, caller: Visitor) -> None:
    for name in ("localhost", "[::1]"):
        assert caller.get("/api/session", Host=f"{name}:{standing.port}").status == 200


def test_a_change_that_another_site_asks_for_is_refused(standing: Web, caller: Visitor) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"):
        reply = caller.post("/api/tasks", {"title": "planted"}, Origin=origin)
        assert reply.status == 403, origin
    assert standing.team.services.workspace.tasks.all() == []


def test_what_another_site_fetches_is_refused(caller: Visitor) -> None:
    for site in ("cross-site", "same-site"):
        assert caller.get("/api/messages", Sec_Fetch_Site=site).status == 403, site


def test_a_change_without_the_pages_token_is_refused(standing: Web, caller: Visitor) -> None:
    without = Visitor(caller.address, caller.cookies)
    for token in ("", "x", "é", "0" * 64):
        header = {"X-CSRF-Token": token.encode().decode("latin-1")} if token else {}
        reply = without.post("/api/tasks", {"title": "planted"}, **header)
        assert reply.status == 403, token
        assert reply.json["success"] is False
    assert standing.team.services.workspace.tasks.all() == []


def test_the_token_of_one_browser_is_not_good_for_another(web: Web, visitor: Visitor) -> None:
    web.stop()
    web.start()
    other = web.visitor()
    other.token = visitor.token
    assert other.post("/api/tasks", {"title": "planted"}).status == 403


def test_a_change_is_no_get_request(caller: Visitor) -> None:
    assert caller.get("/api/tasks/tsk_000000000000/status?status=done").status == 405


def test_an_open_page_stays_open_when_the_server_is_killed_and_started_again(web: Web, visitor: Visitor) -> None:
    web.stop(signal.SIGKILL)
    web.start()
    assert visitor.see("/session")["me"]["id"] == "owner"
    assert visitor.act("/tasks", {"title": "still here"})["task"]["title"] == "still here"


def test_deleting_the_key_shuts_every_browser_out(team: Team, web: Web, visitor: Visitor) -> None:
    web.stop()
    (team.path / ".console" / "key").unlink()
    web.start()
    assert visitor.get("/api/session").status == 401


def test_the_key_is_the_owners_alone(team: Team, web: Web) -> None:
    assert web.link
    key = team.path / ".console" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700


def test_a_browser_is_told_to_run_nothing_but_our_own_files(caller: Visitor) -> None:
    policy = caller.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_every_asset_is_in_the_package(caller: Visitor) -> None:
    for page in ("/", "/agents", "/messages", "/conversations", "/timeline", "/executions", "/health"):
        text = caller.get(page).text
        assert "http://" not in text.replace("http://www.w3.org/", "")
        assert "https://" not in text


def test_it_ends_at_once_on_a_signal_although_a_page_listens(web: Web, visitor: Visitor) -> None:
    with visitor.listen() as events:
        next(events)
        assert web.stop(signal.SIGINT) in (0, -signal.SIGINT)
    assert web.errors.read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("pressed", [1, 2])
def test_it_ends_quietly_although_a_request_never_does(web: Web, visitor: Visitor, pressed: int) -> None:
    with closing(visitor._connect()) as connection:
        connection.putrequest("POST", "/api/tasks")
        told = {"Origin": web.address, "X-CSRF-Token": str(visitor.token), "Content-Length": "100"}
        for name, value in visitor._headers(told).items():
            connection.putheader(name, value)
        connection.endheaders(b"{")
        visitor.see("/session")  # by then the request has been begun
        for _ in range(pressed - 1):
            web.send(signal.SIGINT)
            wait_until(lambda: not _listens(web.port), "it is ending")
        assert web.stop(signal.SIGINT) in (0, -signal.SIGINT)
    assert web.errors.read_text(encoding="utf-8") == ""


def test_nothing_listens_but_on_this_machine(standing: Web) -> None:
    table = [line.split()[1] for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    assert f"0100007F:{standing.port:04X}" in table
    assert f"00000000:{standing.port:04X}" not in table


def test_a_taken_port_is_one_sentence(team: Team, web: Web) -> None:
    ran = team.run("web", "--port", str(web.port))
    assert ran.code == 1
    assert ran.stderr.startswith("multi-agent-mcp: storage_error:")
    assert "--port" in ran.stderr


def test_the_port_of_the_last_time_is_taken_again_if_it_is_free(team: Team) -> None:
    with Web(team, port=None) as first:
        port = first.port
        with Web(team, port=None) as second:
            assert second.port != port
    (team.services.path / ".console" / "port.json").write_text(f"{port}\n", encoding="utf-8")
    with Web(team, port=None) as again:
        assert again.port == port
    for spoilt in ("[1]", "-1", "99999999", "true", "nonsense"):
        (team.services.path / ".console" / "port.json").write_text(spoilt, encoding="utf-8")
        with Web(team, port=None) as still:
            assert still.port is not None


def test_an_unknown_agent_cannot_be_acted_as(team: Team) -> None:
    ran = team.run("web", "--as", "nobody")
    assert ran.code == 1
    assert "agent_not_found" in ran.stderr
