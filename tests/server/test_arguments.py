"""What all tools do with their arguments: those that hosts add, JSON texts, misspelt names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from multi_agent_mcp import Refused
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.server.calls import Tool
from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.wiring import Services
from tests.planned import planned

every_tool = pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)


def _example(schema: dict[str, Any]) -> Any:
    """A value that a schema of `tools/list` allows."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: _example(item) for name, item in schema.get("properties", {}).items()}
    if schema["type"] == "array":
        return [_example(schema["items"])]
    return {"integer": 7, "number": 2.5, "boolean": True, "string": "[1] {no JSON"}[schema["type"]]


def _all_arguments(tool: Tool) -> dict[str, Any]:
    given: dict[str, Any] = _example(tool.described().input_schema)
    words = {"message_type": "request", "status": "todo", "priority": "low"}
    if tool.name == "get_my_execution_history":
        words["status"] = "running"
    return given | {name: word for name, word in words.items() if given.get(name) == _example({"type": "string"})}


def _as_text(value: Any) -> Any:
    """The value with everything that is no text written as JSON text, inner values first."""
    if isinstance(value, dict):
        return json.dumps({name: _as_text(item) for name, item in value.items()})
    if isinstance(value, list):
        return json.dumps([_as_text(item) for item in value])
    return value if isinstance(value, str) else json.dumps(value)


@every_tool
def test_json_texts_stand_for_objects_lists_numbers_and_truth_values_in_every_tool(tool: Tool) -> None:
    given = _all_arguments(tool)
    if tool.name == "create_tasks_batch":
        given["tasks"][0]["priority"] = "low"
    wanted = tool.parse(given)
    assert tool.parse({name: _as_text(value) for name, value in given.items()}) == wanted
    assert all(wanted[name] == value for name, value in given.items() if isinstance(value, str))


@every_tool
def test_null_is_an_argument_left_out_unless_it_means_something(tool: Tool) -> None:
    optional = {name: field for name, field in tool.arguments.model_fields.items() if not field.is_required()}
    needed = {name: value for name, value in _all_arguments(tool).items() if name not in optional}
    if tool.name == "create_tasks_batch":
        needed["tasks"] = [{"title": "t"}]
    for null in (None, "null"):
        given = dict.fromkeys(name for name, field in optional.items() if null is None or field.annotation is int)
        assert tool.parse(needed | given) == tool.parse(needed)
    for name in needed:
        if name != "assignee_id":
            with pytest.raises(InvalidArguments, match=name):
                tool.parse(needed | {name: None})


def test_null_is_left_out_within_a_task_of_a_batch(agent_team: MakeTeam) -> None:
    admin = agent_team()["admin"]
    task = {"title": "t", "description": None, "priority": None, "assignee_id": None, "dependencies": None}
    made = admin.create_tasks_batch(tasks=[task])
    assert made["tasks"][0]["priority"] == "medium"
    wrong: Any
    for wrong in ([None], [{"title": None}], [{"title": "t", "misspelt": None}]):
        with pytest.raises(Refused, match="tasks"):
            admin.create_tasks_batch(tasks=wrong)


@every_tool
def test_what_a_host_adds_for_itself_is_taken_off_and_what_is_misspelt_is_refused(tool: Tool) -> None:
    given = _all_arguments(tool)
    if tool.name == "create_tasks_batch":
        given["tasks"][0]["priority"] = "low"
    assert tool.parse({**given, "wait_for_previous": True, "waitForPreviousTools": False}) == tool.parse(given)
    for misspelt in ("wait_for_previos", "explanation", "wait_for_previous "):
        with pytest.raises(InvalidArguments):
            tool.parse({**given, "wait_for_previous": True, misspelt: True})


def test_a_host_whose_calls_have_arguments_of_its_own_works_with_every_tool_it_needs(agent_team: MakeTeam) -> None:
    worker: Any = agent_team()["worker-a"]
    for tool in ("get_next_action", "read_messages", "get_my_tasks", "get_notifications", "logout"):
        assert getattr(worker, tool)(wait_for_previous=True)["success"], tool


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": "many"}, "limit: Input should be a valid integer"),
        ({"limit": "[5]"}, "limit: Input should be a valid integer"),
        ({"limit": '"501"'}, "limit: Input should be less than or equal to 500"),
        ({"limit": "[" * 100_000}, "limit: Input should be a valid integer"),
        ({"limt": "5"}, "limt: Extra inputs are not permitted"),
    ],
)
def test_a_text_that_says_nothing_fitting_is_refused_by_its_name(
    services: Services, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArguments) as refused:
        TOOLS["get_my_tasks"].parse(given)
    assert said in services.texts.sentence(refused.value)


def test_a_misspelt_key_of_a_task_in_a_batch_is_refused(agent_team: MakeTeam) -> None:
    with pytest.raises(Refused, match=r"invalid_arguments.*tasks\.0\.asignee_id"):
        agent_team()["admin"].create_tasks_batch([{"title": "x", "asignee_id": "worker-a"}])


@pytest.mark.parametrize(
    "wrong", [{"content": "x\ud83d"}, {"content": "x", "metadata": '{"mood": "\\ud83d"}'}], ids=["text", "JSON"]
)
def test_half_a_character_is_named_with_what_to_write_instead(agent_team: MakeTeam, wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=r"invalid_arguments.*emoji"):
        agent_team()["worker-a"].send_message(receiver_id="admin", **wrong)


OTHER_KINDS: dict[str, list[Any]] = {
    "integer": [True, False, "true", 1.5, "1.5", float("nan"), "NaN", [1], {"a": 1}, "one", ""],
    "number": [True, False, "true", [1.0], {"a": 1.0}, "one", ""],
    "boolean": [2, 0.5, [True], {"a": True}, "perhaps", ""],
    "string": [7, 1.5, True, ["x"], {"a": "x"}],
    "array": [7, True, "x", {"a": "x"}, [7]],
    "object": [7, True, "x", ["x"]],
}


@every_tool
def test_no_kind_of_value_passes_for_another(tool: Tool) -> None:
    given = _all_arguments(tool)
    for name, schema in tool.described().input_schema.get("properties", {}).items():
        for wrong in OTHER_KINDS[schema.get("type", "string")]:
            with pytest.raises(InvalidArguments):
                tool.parse({**given, name: wrong})


def test_a_truth_value_is_no_number(agent_team: MakeTeam) -> None:
    team = agent_team()
    (task_id,) = planned(team, "Build")
    worker: Any = team["worker-a"]
    with pytest.raises(Refused, match=r"invalid_arguments.*progress: .*not a truth value"):
        worker.report_task_progress(task_id, progress=True)
    assert worker.report_task_progress(task_id, progress=40.0)["progress"] == 40


def test_a_misspelt_key_of_a_checklist_is_refused(agent_team: MakeTeam) -> None:
    team = agent_team()
    (task_id,) = planned(team, "Build")
    worker: Any = team["worker-a"]
    with pytest.raises(Refused, match=r"invalid_arguments.*checklist\.0\.done"):
        worker.report_task_progress(task_id, checklist=[{"text": "walls", "done": True}])


@pytest.mark.parametrize("blank", ["", " \n"])
def test_nothing_blank_is_sent_and_a_report_without_words_says_what_it_is(agent_team: MakeTeam, blank: str) -> None:
    team = agent_team()
    (task_id,) = planned(team, "Build")
    admin, worker = team["admin"], team["worker-a"]
    for receiver in ("worker-a", None):
        with pytest.raises(Refused, match=r"invalid_arguments: content is empty"):
            admin.send_message(content=blank, receiver_id=receiver)
    worker.report_task_progress(task_id, 40, blank)
    worker.report_task_completion(task_id, "completed", blank)
    assert [message["content"] for message in admin.read_messages()["messages"]] == ["Progress: 40%", "Done: Build"]
