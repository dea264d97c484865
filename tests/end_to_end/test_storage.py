"""A disk that refuses, a registry cut short, and the desktop's notices
(docs/protocol.md, Files, Error codes, Channels)."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.support import Ran, Team, eventually

REPORTING = """\
#!/bin/sh
for argument in "$@"; do printf '%s\\0' "$argument" >> "{log}"; done
"""


def _fake(directory: Path, name: str) -> Path:
    """A desktop command that writes down its arguments, each ended by a NUL."""
    directory.mkdir(exist_ok=True)
    log = directory / f"{name}.log"
    (directory / name).write_text(REPORTING.format(log=log), encoding="utf-8")
    (directory / name).chmod(0o755)
    return log


def _arguments(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").split("\0")[:-1]


def test_an_owners_notice_is_shown_by_osascript_first_with_the_text_as_an_argument(team: Team, tmp_path: Path) -> None:
    bin_path = tmp_path / "bin"
    osascript, notify_send = _fake(bin_path, "osascript"), _fake(bin_path, "notify-send")
    env = {"PATH": f"{bin_path}:{team.env['PATH']}"}
    hostile = '"; do shell script "touch pwned'
    sent = team.ask("send", "owner", hostile, "--subject", hostile, "--as", "admin", env=env)
    assert sent["delivery"]["owner"]["state"] == "rung"
    *script, title, text = _arguments(osascript)
    assert (title, text) == ("Multi-Agent MCP", "[IPC] 新しいメッセージ: request from admin")
    assert "pwned" not in "".join(script)
    assert "IPC" not in "".join(script)
    assert not notify_send.exists()


def test_notify_send_is_used_where_there_is_no_osascript(team: Team, tmp_path: Path) -> None:
    bin_path = tmp_path / "bin"
    notify_send = _fake(bin_path, "notify-send")
    sent = team.ask("send", "owner", "x", "--as", "admin", env={"PATH": f"{bin_path}:{_without_desktop(tmp_path)}"})
    assert sent["delivery"]["owner"]["state"] == "rung"
    assert _arguments(notify_send)[-2:] == ["Multi-Agent MCP", "[IPC] 新しいメッセージ: request from admin"]


def _without_desktop(tmp_path: Path) -> str:
    nothing = tmp_path / "nothing"
    nothing.mkdir(exist_ok=True)
    return str(nothing)


@pytest.mark.anyio
async def test_a_hostile_file_in_the_owners_mailbox_names_nobody_in_the_notice(team: Team, tmp_path: Path) -> None:
    osascript = _fake(tmp_path / "bin", "osascript")
    async with team.server("owner", env={"PATH": f"{tmp_path / 'bin'}:{team.env['PATH']}"}) as owner:
        header = json.dumps({"sender_id": '"\n& do shell script "reboot', "message_type": "-e 'tell'", "subject": "-e"})
        team.drop(team.path / "ipc" / "owner" / "hostile.md", f"---\n{header}\n---\n\n-e boo\n")
        await eventually(lambda: osascript.exists() and _arguments(osascript), "the notice is shown")
        assert _arguments(osascript)[-2:] == ["Multi-Agent MCP", "[IPC] 新しいメッセージ: request from unknown"]
        assert len((await owner.call("read_messages"))["messages"]) == 1


def test_without_any_desktop_command_the_message_is_stored_and_the_reason_told(team: Team, tmp_path: Path) -> None:
    for receiver, reason in {"owner": "no_desktop", "worker-a": "no_pane"}.items():
        sent = team.ask("send", receiver, "x", "--as", "admin", env={"PATH": _without_desktop(tmp_path)})
        delivery = sent["delivery"][receiver]
        assert delivery == {"state": "stored", "reason": reason}
        assert len(team.unread(receiver)) == 1


def test_a_desktop_command_that_fails_is_no_failure_of_the_message(team: Team) -> None:
    assert team.delivery("owner") == ("stored", "desktop_failed")
    assert len(team.unread("owner")) == 1


def _refused_by_the_disk(ran: Ran) -> None:
    assert ran.code == 1, ran
    if ran.stdout:
        assert ran.json["error"] == "storage_error"
        assert ran.stderr == ""
    else:
        assert ran.stderr.startswith("multi-agent-mcp: storage_error: ")
        assert len(ran.stderr.splitlines()) == 1


def _file_for_directory(path: Path) -> None:
    """Replaces a directory by a file, below which not even root can write."""
    if path.is_dir():
        path.rename(path.with_name(f"{path.name}.aside"))
    path.write_text("in the way\n", encoding="utf-8")


@pytest.mark.parametrize("in_the_way", ["ipc/worker-a", ".tmp"])
@pytest.mark.parametrize("receiver", ["worker-a", "all"])
def test_a_message_that_cannot_be_written_is_refused_as_a_whole(team: Team, in_the_way: str, receiver: str) -> None:
    _file_for_directory(team.path / in_the_way)
    for json_wanted in ((), ("--json",)):
        _refused_by_the_disk(team.run("send", receiver, "x", *json_wanted))
    assert list((team.path / "ipc").rglob("*.md")) == []


@pytest.mark.parametrize("in_the_way", [".tmp", ".locks"])
def test_mail_that_cannot_be_marked_read_stays_unread(team: Team, in_the_way: str) -> None:
    team.send("worker-a", "still there")
    _file_for_directory(team.path / in_the_way)
    for json_wanted in ((), ("--json",)):
        ran = team.run("read", "worker-a", *json_wanted)
        assert ran.code == 1
        if ran.stderr:
            assert ran.stderr.startswith("multi-agent-mcp: storage_error: ")
            assert len(ran.stderr.splitlines()) == 1
            assert "still there" in ran.stdout or not ran.stdout
        if json_wanted:
            assert isinstance(ran.json, dict)
    assert len(team.unread("worker-a")) == 1


def test_a_message_is_stored_also_where_no_lock_can_be_had_for_its_doorbell(team: Team) -> None:
    team.services.workspace.locks.lock("any")
    team.services.workspace.registry.update("worker-a", pane_id="%1", socket_path="/nowhere")
    _file_for_directory(team.path / ".locks")
    assert team.delivery("worker-a") == ("stored", "storage_error")
    assert len(team.unread("worker-a")) == 1


def test_a_sender_needs_no_lock_to_say_that_nobody_can_be_rung(team: Team) -> None:
    team.services.workspace.locks.lock("any")
    _file_for_directory(team.path / ".locks")
    assert team.delivery("worker-a") == ("stored", "no_pane")
    assert len(team.unread("worker-a")) == 1


def test_init_below_a_file_is_one_sentence(bare: Team) -> None:
    (bare.base / "team.yaml").write_text("session: demo\nagents: [{id: owner, role: owner}]\n", encoding="utf-8")
    (bare.base / "root").write_text("not a directory\n", encoding="utf-8")
    for json_wanted in ((), ("--json",)):
        _refused_by_the_disk(bare.run("init", *json_wanted))


def _largest_file(size: int) -> Callable[[], None]:
    """Returns a function that limits the size of files, so that larger writes fail as on a full disk."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def test_a_full_disk_refuses_a_message_as_a_whole(team: Team) -> None:
    before = sorted(team.path.rglob("*.md"))
    for command in (("send", "worker-a", "x" * 5_000), ("send", "all", "x" * 5_000)):
        for json_wanted in ((), ("--json",)):
            _refused_by_the_disk(team.run(*command, *json_wanted, before=_largest_file(4_096)))
    assert sorted(team.path.rglob("*.md")) == before
    assert list((team.path / ".tmp").iterdir()) == []
    assert team.send("worker-a", "x" * 5_000)["message_id"]


def test_a_full_disk_leaves_the_registry_and_unread_mail_as_they_were(team: Team) -> None:
    team.send("worker-a", "x" * 500)
    registry = (team.path / "agents.json").read_bytes()
    _refused_by_the_disk(team.run("agent", "add", "worker-c", before=_largest_file(200)))
    assert (team.path / "agents.json").read_bytes() == registry
    ran = team.run("read", "worker-a", "--json", before=_largest_file(200))
    assert ran.code == 1
    assert "storage_error" in ran.stderr
    assert len(ran.json["messages"]) == 1
    assert len(team.unread("worker-a")) == 1


@pytest.mark.anyio
async def test_a_server_outlives_a_full_disk(team: Team) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    async with team.server("admin") as admin:
        resource.prlimit(admin.pid, resource.RLIMIT_FSIZE, (2_000, hard))
        for arguments in ({"receiver_id": "worker-a"}, {}):
            assert await admin.refused("send_message", content="x" * 3_000, **arguments) == "storage_error"
        task = {"agent_id": "worker-a", "title": "t", "content": "x" * 3_000}
        assert await admin.refused("send_task", **task) == "storage_error"
        assert (await admin.call("get_unread_count"))["unread_count"] == 0
        resource.prlimit(admin.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert list((team.path / "ipc").rglob("*.md")) == []
        assert list((team.path / "tasks").rglob("*.md")) == []
        await admin.call("send_message", content="x" * 3_000, receiver_id="worker-a")
        assert len(team.unread("worker-a")) == 1


@pytest.mark.parametrize(
    "damage",
    ["", "{", '{"agents": [1]}', "\x00" * 100],
    ids=["cut in half", "cut at the start", "not agents", "zeros of a power cut"],
)
def test_a_damaged_registry_is_restored_aloud(team: Team, damage: str) -> None:
    path = team.path / "agents.json"
    whole = path.read_bytes()
    path.write_bytes(damage.encode() or whole[: len(whole) // 2])
    ran = team.run("agent", "list", "--json")
    assert ran.code == 0
    assert [agent["id"] for agent in ran.json["agents"]] == ["owner", "admin", "worker-a", "worker-b"]
    assert "agents.json" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert path.read_bytes() == whole
    assert team.run("agent", "list").stderr == ""
    assert any(finding["check"] == "registry" for finding in team.ask("doctor")["findings"])


def test_a_registry_without_a_copy_is_one_sentence(team: Team) -> None:
    (team.path / "agents.json").write_text("{", encoding="utf-8")
    (team.path / "agents.json.bak").unlink()
    for command in (("agent", "list"), ("send", "worker-a", "x"), ("serve", "--agent", "admin")):
        ran = team.run(*command)
        assert ran.code == (2 if command[0] == "serve" else 1)
        assert ran.stderr.startswith("multi-agent-mcp: storage_error: ")
    assert (team.path / "agents.json").read_text(encoding="utf-8") == "{"


@pytest.mark.parametrize(
    "text",
    ["language: [", "language: fr", "- list", "limits: 5", "limits: {content_bytes: -1}"],
)
def test_settings_that_cannot_be_read_are_one_sentence(team: Team, text: str) -> None:
    (team.path / "session.yaml").write_text(text, encoding="utf-8")
    ran = team.run("unread")
    assert ran.code == 1
    assert ran.stderr.startswith("multi-agent-mcp: invalid_arguments: ")
    assert len(ran.stderr.splitlines()) == 1
