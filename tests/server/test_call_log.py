"""What the log of an execution says of a call is what came of it."""

from __future__ import annotations

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.server.binding import Binding
from multi_agent_mcp.server.call import Call
from multi_agent_mcp.server.middleware import Middleware
from multi_agent_mcp.server.toolbox import Answer, Tool
from multi_agent_mcp.services.sessions.receipts import Receipt
from multi_agent_mcp.services.tasks.creation import NewTask


def test_an_interrupt_that_comes_while_a_tool_runs_is_logged_as_what_was_answered(
    services: Services, owner: Agent, worker_a: Agent
) -> None:
    (task,) = services.task_creation.create(owner, [NewTask(title="running", assignee_id=worker_a.id)])
    services.task_changes.start(worker_a, task.id)
    binding = Binding(services, purpose="task")
    binding.bind_process(worker_a.id, None)
    assert binding.session is not None
    services.next_action.begin(binding.session, task.id)

    def slow(call: Call) -> Answer:
        services.task_changes.set_status(owner, task.id, "blocked", "now")
        return {"done_by": call.me.id}

    answer = Middleware(binding, {"slow": Tool(slow)}).answer("slow", {}, Receipt())
    assert answer.structured_content is None
    (execution,) = services.workspace.executions.open(worker_a.id)
    assert "success, replaced by an interrupt (slow" in services.executions.read_log(execution).lines[-1]
    binding.logout()
