"""Usage limits: seen once, waited for, and one ring after the reset."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.usage.limit import FIRST_PROBE, LAST_PROBE, Limit, LimitSeen, until_said
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import send
from tests.services.tasks_support import moved, new
from tests.usage.support import AGENT, RECORDED, lay_out, told

GRACE = timedelta(seconds=120 + 30)
"""Claude's own time to go on, and the time over which rings are spread."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def hook(services: Services, event: str, host: str = "claude", agent: str = AGENT, **facts: Any) -> None:
    facts = {"hook_event_name": event, "session_id": "s-1", **facts}
    services.hooks.answer(agent, "task", Event(event, "s-1", host, facts=facts))


def limited(services: Services, until: datetime | None, window: str = "five_hour", agent: str = AGENT) -> None:
    """The host of an agent meets a limit, as Claude Code tells it."""
    path = services.path.parent / f"{agent}.jsonl"
    quota = {"resetsAt": int(until.timestamp()), "rateLimitType": window} if until else None
    line = {"type": "assistant", "isApiErrorMessage": True, "error": "rate_limit", "quotaLimits": quota}
    path.write_text(json.dumps({**line, "timestamp": services.clock().isoformat()}) + "\n")
    hook(services, "StopFailure", agent=agent, error="rate_limit", transcript_path=str(path))


def notices(services: Services, agent: str = "admin") -> list[str]:
    inbox = services.workspace.notices(agent)
    return [str(notice.reason) for _, notice in inbox.unread() if notice.action == "agent_limited"]


def lines(recorder: Recorder, agent: str = AGENT) -> list[str]:
    return [line for agent_id, line in recorder.rings if agent_id == agent]


def ring(services: Services, agent: str = AGENT) -> None:
    """What the agent's own server does again and again."""
    services.doorbell.ring(agent, "task", {})


def test_the_hosts_hook_and_its_file_say_window_and_reset(services: Services, clock: Clock, recorder: Recorder) -> None:
    until = clock.now.replace(microsecond=0) + timedelta(hours=2)
    limited(services, until)
    found = services.limits.now(AGENT)
    assert found is not None
    assert (found.until, found.window, found.source) == (until, "five_hour", "hook")
    (reason,) = notices(services)
    assert "five_hour" in reason
    assert [line for line in lines(recorder, "admin") if "agent_limited" in line]
    assert services.limits.sentence(found) in services.briefings.of("admin")
    limited(services, until)  # a typed line fails again
    assert len(notices(services)) == 1
    assert json.loads((services.path / ".limits" / f"{AGENT}.json").read_text())["until"].endswith("Z")


def test_the_doorbell_waits_and_rings_once_after_the_reset(
    services: Services, clock: Clock, recorder: Recorder
) -> None:
    until = clock.now + timedelta(hours=1)
    limited(services, until)
    sent = send(services, "admin", AGENT)
    assert sent.delivery[AGENT].as_answer() == {"state": "stored", "reason": "limited"}
    for _ in range(3):
        ring(services)
        clock.advance(600)
    assert lines(recorder) == []
    clock.now = until + timedelta(seconds=60)
    ring(services)
    assert lines(recorder) == []  # the host may still go on by itself
    clock.now = until + GRACE
    ring(services)
    ring(services)
    clock.advance(3600)
    ring(services)
    assert lines(recorder) == ["[IPC] New message: request from admin"]
    send(services, "admin", AGENT)
    assert len(lines(recorder)) == 2


def test_an_agent_with_a_task_and_nothing_unread_is_told_to_go_on_once(
    services: Services, clock: Clock, recorder: Recorder
) -> None:
    moved(services, new(services), "in_progress")
    services.notifications.read(AGENT, "task")
    recorder.rings.clear()
    limited(services, clock.now + timedelta(hours=1))
    clock.advance(3600 + GRACE.total_seconds())
    for _ in range(5):
        ring(services)
        clock.advance(60)
    assert lines(recorder) == ["[IPC] Please go on"]


@pytest.mark.parametrize(
    "event",
    [
        {"hook_event_name": "PostToolUse"},
        {"hook_event_name": "Stop"},
        {"hook_event_name": "Notification", "notification_type": "quota_auto_resume_fired"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "Your claude.ai usage limit has reset. Continue the task"},
    ],
)
def test_none_is_rung_whose_host_went_on_by_itself(
    services: Services, clock: Clock, recorder: Recorder, event: dict[str, str]
) -> None:
    moved(services, new(services), "in_progress")
    services.notifications.read(AGENT, "task")
    recorder.rings.clear()
    until = clock.now + timedelta(hours=1)
    limited(services, until)
    clock.now = until + timedelta(seconds=104)
    name = event["hook_event_name"]
    hook(services, name, **{key: value for key, value in event.items() if key != "hook_event_name"})
    assert services.limits.of(AGENT) is None
    clock.now = until + GRACE
    ring(services)
    assert lines(recorder) == []


def test_a_limit_that_is_lifted_early_ends_with_the_agents_next_act(services: Services, clock: Clock) -> None:
    until = clock.now + timedelta(hours=1)
    limited(services, until)
    clock.advance(60)
    services.limits.acted(AGENT)
    assert services.limits.now(AGENT) is None
    clock.advance(60)
    limited(services, until)  # the same window with the same reset: the same episode
    assert services.limits.now(AGENT) is not None
    assert len(notices(services)) == 1
    clock.now = until + timedelta(hours=1)
    services.limits.acted(AGENT)
    limited(services, until + timedelta(hours=5))
    assert len(notices(services)) == 2


def test_without_a_reset_it_is_probed_ever_less_often(services: Services, clock: Clock, recorder: Recorder) -> None:
    moved(services, new(services), "in_progress")
    services.notifications.read(AGENT, "task")
    recorder.rings.clear()
    limited(services, None)
    assert services.limits.all()[AGENT].until_said == "unknown"
    began, at = clock.now, []
    while clock.now < began + timedelta(hours=8):
        before = len(lines(recorder))
        ring(services)
        if len(lines(recorder)) > before:
            at.append(clock.now - began)
            limited(services, None)
        clock.advance(60)
    assert at[0] == FIRST_PROBE
    pauses = [later - earlier for earlier, later in pairwise(at)]
    assert pauses[:4] == [FIRST_PROBE * 2, FIRST_PROBE * 4, LAST_PROBE, LAST_PROBE]
    assert len(notices(services)) == 1


def test_a_limited_agent_is_never_stuck(services: Services, clock: Clock) -> None:
    moved(services, new(services), "in_progress")
    until = clock.now + timedelta(hours=3)
    limited(services, until)
    clock.advance(7200)
    assert AGENT not in services.stuck_agents.find()
    clock.now = until + timedelta(minutes=10)
    assert AGENT not in services.stuck_agents.find()
    clock.now = until + timedelta(hours=2)
    assert AGENT in services.stuck_agents.find()


@pytest.mark.parametrize(("policy", "is_known", "is_rung"), [("tell", True, False), (False, False, True)])
def test_each_agent_chooses_what_happens(
    services: Services, clock: Clock, recorder: Recorder, policy: object, is_known: bool, is_rung: bool
) -> None:
    services.workspace.registry.update(AGENT, on_limit=policy)
    limited(services, clock.now + timedelta(hours=1))
    assert (services.limits.now(AGENT) is not None, bool(notices(services))) == (is_known, is_known)
    send(services, "admin", AGENT)
    clock.advance(3600 + GRACE.total_seconds())
    ring(services)
    assert bool(lines(recorder)) == is_rung


def test_many_agents_on_one_account_are_rung_spread_and_each_once(
    services: Services, clock: Clock, recorder: Recorder
) -> None:
    until = clock.now + timedelta(hours=1)
    agents = ["admin", AGENT, "worker-b"]
    for agent in agents:
        limited(services, until, agent=agent)
        send(services, "owner", agent)
    assert {agent_id for agent_id, _ in recorder.rings} <= {"owner"}
    recorder.rings.clear()
    clock.now = until + timedelta(seconds=120)
    at: dict[str, float] = {}
    for second in range(31):
        for agent in agents:
            ring(services, agent)
        for agent_id, _ in recorder.rings:
            at.setdefault(agent_id, second)
        clock.advance(1)
    assert {agent: len(lines(recorder, agent)) for agent in agents} == dict.fromkeys(agents, 1)
    assert len({at[agent] for agent in agents}) > 1


def test_a_clock_that_was_ahead_neither_rings_twice_nor_never(
    services: Services, clock: Clock, recorder: Recorder
) -> None:
    true, until = clock.now, clock.now + timedelta(hours=2)
    limited(services, until)
    send(services, "admin", AGENT)
    clock.now = until + timedelta(hours=1)  # wrongly
    ring(services)
    assert len(lines(recorder)) == 1
    clock.now = true + timedelta(minutes=5)  # set right; the host has failed again meanwhile
    limited(services, until)
    ring(services)
    assert len(lines(recorder)) == 1
    clock.now = until + GRACE
    ring(services)
    assert len(lines(recorder)) == 2


def test_codex_tells_by_its_rollout(services: Services, clock: Clock, home: Path) -> None:
    services.workspace.registry.update(AGENT, host="codex")
    (path,) = lay_out(home, "codex", "rollout_usage_limit.jsonl")
    told(services, "codex", path)
    clock.now = datetime(2026, 11, 23, 18, 4, 45, tzinfo=UTC)
    assert services.usage.has_news()
    services.usage.refresh(recent=True)
    assert not services.usage.has_news() or not services.usage.has_news()
    found = services.limits.now(AGENT)
    assert found is not None
    assert (found.until, found.window) == (datetime.fromtimestamp(1795460672, UTC), "5h")
    last = {"type": "token_usage_record", "timestamp": "2026-11-23T18:10:00Z"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**last, "payload": {"response_id": "r-new", "usage": usage}}) + "\n")
    clock.advance(600)
    services.usage.refresh(recent=True)
    assert services.limits.of(AGENT) is None  # the model has answered


def test_copilot_tells_by_its_hook(services: Services, clock: Clock) -> None:
    said = json.dumps({"message": "Rate limit reached, try again in 1 hour", "code": "rate_limit_exceeded"})
    hook(services, "ErrorOccurred", "copilot", error={"message": said, "name": "Error"})
    found = services.limits.now(AGENT)
    assert found is not None
    assert found.until == clock.now + timedelta(hours=1)


def test_what_is_no_limit_is_none(services: Services) -> None:
    hook(services, "StopFailure", error="server_error", last_assistant_message="API Error: Repeated 529 Overloaded")
    hook(services, "Notification", notification_type="permission_prompt")
    assert services.limits.of(AGENT) is None


NOW = datetime(2026, 11, 23, 18, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "zone", "until"),
    [
        ("You've hit your 5-hour limit · resets 6:04pm (UTC)", "Asia/Tokyo", (23, 18, 4)),
        ("limit resets 6:04pm", "UTC", (23, 18, 4)),
        ("limit resets 3:30am", "Asia/Tokyo", (23, 18, 30)),
        ("limit resets 3am", "UTC", (24, 3, 0)),
        ("try again at 7:04 PM.", "UTC", (23, 19, 4)),
        ("try again at 5:04 PM.", "UTC", (23, 17, 4)),  # it has passed, and is not tomorrow's
        ("resets 12am", "UTC", (24, 0, 0)),
        ("try again at Nov 27th, 2026 7:04 PM.", "UTC", (27, 19, 4)),
        ("resets Nov 27, 7pm (Asia/Tokyo)", "UTC", (27, 10, 0)),
        ("Rate limit reached [retrying in 59m 51s attempt #1]", "UTC", (23, 19, 2)),
        ("try again in 3 days 4 hours", "UTC", (26, 22, 3)),
        ("Please try again later.", "UTC", None),
        ("resets 99:99pm", "UTC", None),
    ],
)
def test_resets_are_read_as_hosts_say_them(words: str, zone: str, until: tuple[int, int, int] | None) -> None:
    found = until_said(words, NOW, ZoneInfo(zone))
    assert (found and (found.day, found.hour, found.minute)) == until


def test_a_damaged_record_is_no_limit(services: Services) -> None:
    path = services.path / ".limits" / f"{AGENT}.json"
    path.parent.mkdir(mode=0o700)
    for text in ("", "[]", '{"seen_at": 3}', '{"seen_at": "2026-11-21T00:00:00Z", "grace_seconds": "x", "probes": -1}'):
        path.write_text(text)
        services.limits.now(AGENT)
        services.limits.acted(AGENT)


def test_a_reset_that_has_passed_or_is_too_far_away_is_unknown() -> None:
    seen = LimitSeen(NOW, "hook", NOW - timedelta(minutes=1))
    known = Limit(agent_id=AGENT, seen_at=NOW, source="hook", until=NOW + timedelta(hours=1))
    assert known.again(seen, NOW) is None
    again = Limit(agent_id=AGENT, seen_at=NOW, source="hook", until=None).again(
        LimitSeen(NOW, "file", NOW + timedelta(days=400)), NOW
    )
    assert again is not None
    assert again.until is None


def test_recorded_screens_tell_of_limits_and_only_those() -> None:
    from multi_agent_mcp.doorbell.tmux.profiles import load_profiles

    profiles = load_profiles().named
    showing: dict[str, datetime | None] = {}
    for path in sorted(RECORDED.glob("*/screen_*.txt")):
        if not path.name.endswith(".meta.txt"):
            text = path.read_text(encoding="utf-8")
            found = [shown[0] for pattern in profiles[path.parent.name].limits if (shown := pattern.search(text))]
            showing |= {f"{path.parent.name}/{path.stem}": until_said(found[0], NOW, UTC)} if found else {}
    assert showing == {
        "claude/screen_limit_subscription_5h": datetime(2026, 11, 23, 18, 4, tzinfo=UTC),
        "claude/screen_limit_subscription_typed": datetime(2026, 11, 23, 17, 59, tzinfo=UTC),
        "codex/screen_limit_usage_limit": datetime(2026, 11, 23, 19, 4, tzinfo=UTC),
        "gemini/screen_limit_quota_day": None,
        "opencode/screen_limit_rate_429": NOW + timedelta(minutes=59, seconds=51),
    }
