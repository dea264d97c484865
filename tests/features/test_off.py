"""A feature that is switched off: what it brings is nowhere, and the core works as before
(docs/protocol.md, Features)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from multi_agent_mcp import Interrupted
from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.main import app
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.features import Feature, Features
from multi_agent_mcp.features.ours import OURS
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.server.tools import TOOLS, tools_of
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.web.api import endpoints_of
from multi_agent_mcp.wiring import Services
from tests.planned import planned
from tests.server.seat import Seat

OPTIONAL = {feature.name: feature for feature in OURS if feature.optional}
TOOLS_OF = {"questions": {"ask", "answer_question"}, "reservations": {"reserve_files", "release_files"}}
COMMANDS_OF = {
    "questions": {"questions"},
    "reservations": {"edits", "reservations", "reserve", "release"},
    "proof": {"checks"},
    "worktrees": {"workspace", "why"},
    "usage": {"usage"},
    "telemetry": set[str](),
    "timeline": {"timeline", "stats"},
    "machines": {"share", "join", "machines", "relay", "leave"},
}
CHANGES_TOOLS = {"questions", "reservations", "proof", "worktrees"}
WORDS_OF = {
    "questions": r"question|answer_question|`ask`|qst_|was asked",
    "reservations": r"reserv|release_files|rsv_",
    "worktrees": r"worktree|\bmerge|workspace",
    "usage": r"tokens\b|budget|usage limit",
    "proof": r"done.when|review(?!_)|receipts|\bprove|proof|verify a|--force |--state ",
    "telemetry": r"telemetry|span",
    "timeline": r"timeline|statistics",
    "machines": r"another machine|between machines|machines:|another home|hub",
}
"""What a feature alone says, in help texts and in descriptions and schemas of tools."""
ORDINARY = r"questions in panes|with a question; nothing|--question ID|work, review, read_messages"
"""What the core says with such words: a host's question, a request to be looked at."""

Without = Callable[..., Services]


def say(root: Path, features: object) -> None:
    """Writes `features:` of the session's session.yaml, as a person does."""
    path = root / "demo" / "session.yaml"
    settings = {**yaml.safe_load(path.read_text(encoding="utf-8")), "features": features}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    for approved in ("approved.json", ".checks/approved/last.json"):  # as if nothing had been approved
        (root / "demo" / approved).unlink(missing_ok=True)


@pytest.fixture
def without(services: Services) -> Without:
    """Opens the session again without these features."""

    def opened(*names: str) -> Services:
        say(services.root, dict.fromkeys(names, "off"))
        return open_session(services.root, "demo", notifier=Recorder())

    return opened


def run(services: Services, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*arguments, "--root", str(services.root)])
    return result.exit_code, result.output


@pytest.mark.parametrize("name", OPTIONAL)
def test_its_tools_and_arguments_are_nowhere(without: Without, name: str) -> None:
    assert TOOLS.keys() - tools_of(without(name).session.features).keys() == TOOLS_OF.get(name, set())
    with_pool = (
        tools_of(Features(OURS)),
        tools_of(Features(tuple(one for one in OURS if one.name != name), (OPTIONAL[name],))),
    )
    whole, listed = (
        json.dumps([tool.described().model_dump(mode="json") for tool in tools.values()], ensure_ascii=False)
        for tools in with_pool
    )
    assert re.findall(WORDS_OF[name], re.sub(ORDINARY, "", listed)) == []
    assert (len(listed) < len(whole)) == (name in CHANGES_TOOLS)


@pytest.mark.parametrize("name", OPTIONAL)
def test_its_commands_are_nowhere(without: Without, name: str) -> None:
    services = without(name)
    for command in COMMANDS_OF[name]:
        code, said = run(services, command)
        assert (code, "No such command" in said) == (2, True), said
    assert OPTIONAL[name].commands.keys() == COMMANDS_OF[name]


def helps(group: click.Group, context: click.Context) -> Iterator[str]:
    """What `--help` says of a group and of every command below it."""
    yield group.get_help(context)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        below = click.Context(command, parent=context, info_name=name, terminal_width=1000, max_content_width=1000)
        yield from helps(command, below) if isinstance(command, click.Group) else [command.get_help(below)]


@pytest.mark.parametrize("name", OPTIONAL)
def test_no_help_text_speaks_of_it(without: Without, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(without(name).root.parent)
    context = click.Context(app, info_name="multi-agent-mcp", terminal_width=1000, max_content_width=1000)
    said = [re.sub(ORDINARY, "", text).replace("Usage:", "") for text in helps(app, context)]
    assert len(said) > 50
    assert [line for text in said for line in text.splitlines() if re.search(WORDS_OF[name], line)] == []


@pytest.mark.parametrize("name", OPTIONAL)
def test_the_list_of_commands_in_its_directory_does_not_have_them(
    without: Without, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(without(name).root.parent)
    shown = CliRunner().invoke(app, ["--help"]).output
    listed = {line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line.strip()}
    assert {"send", "task", "attention", "doctor"} <= listed
    assert not listed & COMMANDS_OF[name]


@pytest.mark.parametrize("name", OPTIONAL)
def test_its_endpoints_checks_and_items_are_nowhere(without: Without, name: str) -> None:
    services, feature = without(name), OPTIONAL[name]
    features = services.session.features
    kept = {(method, path) for method, path, _ in endpoints_of(features)}
    assert not kept & {(method, path) for method, path, _ in feature.endpoints}
    doctor = services.doctor(probe=lambda _: None)
    assert not doctor.checks.keys() & feature.checks.keys()
    assert doctor.checks.keys() > {"keys", "tree", "sessions"}
    for field in ("attention", "items", "briefing", "judges", "pages", "topics", "tools"):
        assert not {*_named(features, field)} & {*getattr(feature, field)}, field
    assert {*services.lookup.kinds} == {kind.prefix for kind in features.each("kinds") if kind.name}


def _named(features: Features, field: str) -> list[str]:
    return [item[0] if isinstance(item, tuple) else item for item in features.each(field)]


@pytest.mark.parametrize("names", [*((name,) for name in OPTIONAL), tuple(OPTIONAL)], ids="+".join)
def test_work_is_handed_down_interrupted_and_reported_without_it(agent_team: MakeTeam, names: tuple[str, ...]) -> None:
    team = agent_team(features=dict.fromkeys(names, "off"))
    owner, admin, worker = (team[name] for name in ("owner", "admin", "worker-a"))
    owner.send_task("admin", "All", "build it")
    assert admin.get_next_action()["action"] in ("read_messages", "work")
    (message,) = admin.read_messages()["messages"]
    (part,) = planned(team, "A part")
    worker.get_notifications()
    assert worker.get_next_action()["task"]["task_id"] == part
    admin.update_task_status(part, "blocked", "wait")
    with pytest.raises(Interrupted):
        worker.get_unread_count()
    assert worker.get_notifications()["notifications"][0]["type"] == "interrupt"
    assert worker.report_completed("blocked")["action"] == "exit"
    admin.update_task_status(part, "todo")
    worker.get_notifications()
    assert worker.get_next_action()["action"] == "work"
    assert worker.report_completed("success", summary="built")["status"] == "done"
    assert admin.send_message("done", "owner")["success"]
    assert message["sender_id"] == "owner"
    services = open_session(team.path.parent, team.session, notifier=Recorder())
    assert [item.kind for item in services.attention.of(services.agents.owner())]
    assert services.briefings.of("worker-a")
    assert services.doctor(probe=lambda _: None).examine() is not None


def test_a_value_that_is_neither_on_nor_off_and_an_unknown_name_are_named_and_left_out(services: Services) -> None:
    for features, words in (
        ({"proof": "maybe"}, "features.proof is 'maybe', not one of on, off"),
        ({"prof": "off"}, "there is no feature called prof"),
        ({"mail": "off"}, "there is no feature called mail"),
        ({7: "off"}, "there is no feature called 7"),
        (["proof"], "features is not a mapping"),
    ):
        say(services.root, features)
        code, said = run(services, "up")
        assert (code, words in said) == (1, True), said
        code, said = run(services, "unread")
        assert (code, words in said, "features in session.yaml" in said) == (0, True, True), said
        opened = open_session(services.root, "demo")
        assert [one.check for one in opened.doctor(probe=lambda _: None).examine() if "feature" in one.finding] == [
            "features"
        ]
        assert ("proof" in opened.session.features) == (features != {"proof": "maybe"})


@pytest.mark.parametrize("value", ["on", "yes", True])
def test_what_is_said_to_be_on_is_on(services: Services, value: object) -> None:
    say(services.root, {"proof": value})
    assert tools_of(open_session(services.root, "demo").session.features).keys() == TOOLS.keys()


def parked(services: Services, worker: Agent) -> tuple[str, str]:
    seat = Seat(services, worker.id)
    seat.call("get_next_action")
    return "questions", seat.call("ask", question="Red or blue?", park=True)["question_id"]


def reviewed(services: Services, worker: Agent) -> tuple[str, str]:
    task = services.task_creation.create(services.agents.get("admin"), [NewTask(title="x", done_when=["review"])])[0]
    services.task_changes.assign(services.agents.get("admin"), task.id, worker.id)
    seat = Seat(services, worker.id)
    seat.call("get_next_action")
    seat.call("report_completed", result="success", task_id=task.id)
    return "proof", task.id


def reserved(services: Services, worker: Agent) -> tuple[str, str]:
    return "reservations", Seat(services, worker.id).call("reserve_files", paths=["src/**"])["reservation_id"]


@pytest.mark.parametrize("begin", [parked, reviewed, reserved], ids=lambda begin: begin.__name__)
def test_what_is_open_keeps_a_feature_on(
    services: Services, worker_a: Agent, begin: Callable[[Services, Agent], tuple[str, str]]
) -> None:
    services.task_creation.create(services.agents.get("admin"), [NewTask(title="work", assignee_id="worker-a")])
    name, entity_id = begin(services, worker_a)
    team = services.root.parent / "team.yaml"
    team.write_text(f"session: demo\nagents: [{{id: owner, role: owner, type: human}}]\nfeatures: {{{name}: off}}\n")
    before = (services.path / "session.yaml").read_bytes()
    for command in (["init", "--team", str(team)], ["up"]):
        code, said = run(services, *command)
        assert (code, entity_id in said, f"The feature {name} cannot be off" in said) == (1, True, True), said
        assert (services.path / "session.yaml").read_bytes() == before or command == ["up"]
        say(services.root, {name: "off"})  # as a person would
    opened = open_session(services.root, "demo")
    (finding,) = [one for one in opened.doctor(probe=lambda _: None).examine() if one.check == "features"]
    assert entity_id in finding.finding
    assert run(opened, "unread")[0] == 0


@pytest.mark.parametrize("name", OPTIONAL)
def test_an_id_of_any_kind_is_looked_up_without_it(without: Without, worker_a: Agent, name: str) -> None:
    services = without(name)
    sent = services.messages.send(services.agents.owner(), Draft(content="hello", receiver_id=worker_a.id))
    code, said = run(services, "trace", sent.message_id)
    assert (code, "stored" in said) == (0, True), said
    for command in (["trace"], ["answer"], ["show"], ["task", "show"], ["log"], ["conversations"]):
        for one in (f"{kind.prefix}_1a2b3c4d" for feature in OURS for kind in feature.kinds if kind.prefix):
            code, said = run(services, *command, one)
            assert (code, "Traceback" in said, said.startswith("multi-agent-mcp: ")) == (1, False, True), said
    prefixes = [kind.prefix for feature in OURS for kind in feature.kinds if kind.prefix and kind.name]
    assert services.lookup.full_id("1a2b3c4d", *prefixes) == "1a2b3c4d"


def test_options_and_commands_below_others_go_with_their_feature(without: Without) -> None:
    services = without("proof", "usage")
    assert run(services, "task", "verify", "tsk_000000000000")[0] == 2
    assert run(services, "task", "add", "x", "--done-when", "review")[0] == 2
    assert run(services, "resume", "worker-a", "--tokens", "5")[0] == 2
    assert run(services, "task", "add", "x")[0] == 0
    assert "verify" not in run(services, "task", "--help")[1]


def test_without_proof_nothing_can_be_moved_to_where_nobody_looks_at_it(without: Without) -> None:
    services = without("proof")
    (task,) = services.task_creation.create(services.agents.get("admin"), [NewTask(title="x", assignee_id="worker-a")])
    Seat(services, "worker-a").call("get_next_action")
    for answer in (
        Seat(services, "worker-a").call("update_task_status", task_id=task.id, status="review"),
        Seat(services, "worker-a").call("get_my_tasks", status="review"),
    ):
        assert (answer["error"], "review" in answer["message"]) == ("invalid_arguments", False)
    with pytest.raises(InvalidArguments):
        services.task_changes.set_status(services.agents.owner(), task.id, "review")
    assert "review" not in services.task_changes.targets(services.agents.owner(), task)
    assert "review" not in [column.status for column in services.board.columns()]
    for command in (["task", "status", task.id, "review"], ["task", "list", "--status", "review"]):
        assert run(services, *command)[0] == 2


def test_a_task_that_is_in_review_is_shown_though_proof_is_off(without: Without, worker_a: Agent) -> None:
    services = without()
    _, task_id = reviewed(services, worker_a)
    services = without("proof")
    assert [task.id for column in services.board.columns() for task in column.tasks] == [task_id]
    assert services.dashboard.data()["counts"]["review"] == 1


@pytest.mark.parametrize(
    ("name", "column"), [("questions", "until_answer"), ("proof", "review")], ids=["questions", "proof"]
)
def test_statistics_have_no_column_of_it(without: Without, name: str, column: str) -> None:
    for off, has in (((name,), False), ((), True)):
        services = without(*off)
        services.task_creation.create(services.agents.get("admin"), [NewTask(title="x", assignee_id="worker-a")])
        figures = json.loads(run(services, "stats", "--json")[1])
        assert (column in {*_keys(figures)}) == has
        assert (services.people(f"table.{column}") in run(services, "stats")[1]) == has


KEYS_OF = {
    "proof": {"done_when", "proof", "receipts", "is_examined"},
    "questions": {"questions"},
    "usage": {"usage"},
    "worktrees": {"commits", "uncommitted"},
}


@pytest.mark.parametrize("name", KEYS_OF)
def test_no_answer_about_a_task_has_its_keys(without: Without, name: str) -> None:
    services = without(name)
    seats = {one: Seat(services, one) for one in ("owner", "admin", "worker-a")}
    answers: list[object] = [
        seats["admin"].call("create_tasks_batch", tasks=[{"title": "A part", "assignee_id": "worker-a"}])
    ]
    (task_id,) = (task.id for task in services.workspace.tasks.open())
    answers += [seats["worker-a"].call(tool) for tool in ("get_notifications", "get_next_action")]
    answers.append(seats["worker-a"].call("report_completed", result="success", summary="built"))
    answers += [seats[one].call(tool) for one in seats for tool in ("get_next_action", "read_messages")]
    for command in (["task", "show", task_id], ["task", "list"], ["show", task_id], ["watch", "--once"], ["attention"]):
        code, said = run(services, *command, "--json")
        assert code == 0, said
        answers.append(json.loads(said))
    answers.append(services.dashboard.data())
    assert KEYS_OF[name] & {*_keys(answers)} == set()


def _keys(value: object) -> Iterator[str]:
    """The keys of all objects in an answer but those of a task's history, which says what has been."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield key
        yield from _keys(inner) if key != "history" else ()
    for item in value if isinstance(value, list) else ():
        yield from _keys(item)


def test_what_agents_may_do_is_approved_without_proof_too(without: Without) -> None:
    services = without("proof")
    services.approvals.approve()
    services.agents.registry.update("worker-a", edits=["src/**"])
    (item,) = services.attention.checks_changed(services.agents.owner())
    assert (item.kind, item.command) == ("checks_changed", "multi-agent-mcp agent approve")
    assert "review" not in item.text
    code, said = run(services, "agent", "approve")
    assert (code, '→ {"role": "worker", "edits": ["src/**"]}' in said, "review" in said) == (0, True, False), said
    assert services.approvals.look().state == "approved"
    for kept in (services.workspace.approval, services.workspace.last_approval):
        kept.remove()
    (item,) = services.attention.checks_changed(services.agents.owner())
    assert item.text == "no person has approved what agents may do"


def test_a_session_without_proof_asks_for_none_where_session_yaml_still_does(without: Without) -> None:
    services = without("proof")
    path = services.path / "session.yaml"
    path.write_text(path.read_text() + "done_when: [review]\nchecks: {tests: 'false'}\n")
    services = open_session(services.root, "demo")
    (task,) = services.task_creation.create(services.agents.get("admin"), [NewTask(title="x")])
    assert task.done_when == ()
    assert services.checks.known() == {}


def test_the_names_of_features_in_team_yaml_are_judged_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(
        "session: demo\nlanguage: en\nagents: [{id: owner, role: owner, type: human}]\nfeatures: {prof: off}\n"
    )
    arguments = ["init", "--team", str(tmp_path / "team.yaml"), "--root", str(tmp_path / "root"), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, json.loads(result.stdout)["error"]) == (1, "invalid_arguments")
    assert "prof" in json.loads(result.stdout)["message"]
    assert not (tmp_path / "root").exists()


def test_an_optional_feature_is_a_record_like_the_others() -> None:
    assert all(isinstance(feature, Feature) for feature in OURS)


def test_proof_that_was_approved_as_on_is_switched_off_by_a_person_alone(services: Services) -> None:
    services.workspace.settings_path.write_text("language: en\ndone_when: [review]\n")
    services.approvals.approve()
    services.workspace.settings_path.write_text("done_when: []\nfeatures: {proof: off, timeline: off}\n")
    opened = open_session(services.root, "demo", notifier=Recorder())
    assert ("proof" in opened.session.features, "timeline" in opened.session.features) == (True, False)
    assert opened.approvals.look().changed == ("done_when", "features")
    (task,) = opened.task_creation.create(opened.agents.get("admin"), [NewTask(title="x", assignee_id="worker-a")])
    assert task.done_when == ("review",)
    code, said = run(opened, "checks", "approve")
    assert code == 0, said
    assert "proof" not in open_session(services.root, "demo", notifier=Recorder()).session.features
