"""Stretches of work and their logs (docs/protocol.md, Executions)."""

from __future__ import annotations

import os

import pytest

from multi_agent_mcp.domain.agent import Execution
from multi_agent_mcp.errors import ExecutionNotFound, InvalidArguments, InvalidId, Unauthorized
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services import forks
from tests.services.tasks_support import dies, new, open_session


@pytest.fixture
def session(services: Services) -> LiveSession:
    return open_session(services, "worker-a")


@pytest.fixture
def execution(services: Services, session: LiveSession) -> Execution:
    """A running execution of worker-a."""
    return services.executions.begin(session.record, new(services).id)


def log_lines(services: Services, execution: Execution) -> list[str]:
    return services.workspace.execution_log(execution).read_text(encoding="utf-8").splitlines()


def reloaded(services: Services, execution: Execution) -> Execution:
    return forks.context(services.workspace.root).workspace.executions.get(execution.id)


def test_a_session_has_one_running_execution_per_task(
    services: Services, session: LiveSession, execution: Execution
) -> None:
    assert services.executions.begin(session.record, execution.task_id) == execution
    assert services.executions.running(session.record) == execution
    second = services.executions.begin(session.record, new(services).id)
    assert services.executions.running(session.record) == second
    first = reloaded(services, execution)
    assert (first.status, first.exit_code, first.error_message) == ("failed", 1, "left for another task")


def test_every_line_of_a_log_is_one_line_with_its_time(services: Services, execution: Execution, clock: Clock) -> None:
    services.executions.log(execution, "two\nlines\r\nand\ttabs   and blanks")
    clock.advance(1.5)
    services.executions.log(execution, "x" * 10_000)
    first, second, third = log_lines(services, execution)
    assert first == "[2026-11-21T21:46:01.123456Z] Starting task execution..."
    assert second == "[2026-11-21T21:46:01.123456Z] two lines and tabs and blanks"
    assert third == "[2026-11-21T21:46:02.623456Z] " + "x" * 500


def test_the_newest_of_a_history_are_given_without_reading_the_others(
    services: Services, session: LiveSession, clock: Clock
) -> None:
    finished = []
    for _ in range(3):
        clock.advance(1)
        begun = services.executions.begin(session.record, new(services).id)
        finished.append(services.executions.finish(begun))
    (oldest,) = services.workspace.executions.base.glob(f"worker-a/archive/*/{finished[0].id}.md")
    oldest.write_text(oldest.read_text().replace("agent_id:", "agent_id: ["))  # reading it sets it aside
    os.utime(oldest, (0, 0))
    found, total = services.executions.history("worker-a", limit=1)
    assert (found, total) == ([finished[2]], 3)
    assert oldest.exists()


def test_the_log_is_where_the_execution_says(services: Services, execution: Execution) -> None:
    assert execution.log_file_path == f"executions/worker-a/logs/{execution.id}.log"
    assert services.executions.has_log(execution)
    services.workspace.execution_log(execution).unlink()
    assert not services.executions.has_log(execution)
    page = services.executions.read_log(execution)
    assert (page.lines, page.total) == ([], 0)


def test_finishing_twice_changes_nothing(services: Services, execution: Execution, clock: Clock) -> None:
    clock.advance(2)
    done = services.executions.finish(execution)
    assert (done.status, done.duration_seconds) == ("completed", 2.0)
    assert services.executions.finish(execution, error_message="late") == done
    assert reloaded(services, execution) == done


def test_the_end_of_a_session_fails_what_it_had_open(
    services: Services, session: LiveSession, execution: Execution
) -> None:
    other = services.executions.begin(open_session(services, "worker-a").record, execution.task_id)
    session.end()
    assert reloaded(services, execution).error_message == "the session ended"
    assert reloaded(services, other).running


def test_the_death_of_a_process_fails_what_it_had_open(
    services: Services, session: LiveSession, execution: Execution
) -> None:
    dies(services, session)
    services.sessions.recover("worker-a")
    failed = reloaded(services, execution)
    assert (failed.status, failed.exit_code, failed.error_message) == ("failed", 1, "the session's process died")


def test_history_is_newest_first_filtered_and_counted(services: Services, session: LiveSession, clock: Clock) -> None:
    tasks = [new(services).id for _ in range(2)]
    made = []
    for number in range(4):
        clock.advance(1)
        execution = services.executions.begin(session.record, tasks[number % 2])
        made.append(services.executions.finish(execution, error_message="no" if number == 3 else None))
    ids = [execution.id for execution in made]
    history = services.executions.history
    assert [item.id for item in history("worker-a")[0]] == ids[::-1]
    assert [item.id for item in history("worker-a", task_id=tasks[0])[0]] == [ids[2], ids[0]]
    assert [item.id for item in history("worker-a", status="failed")[0]] == [ids[3]]
    assert history("worker-a", status="running") == ([], 0)
    found, total = history("worker-a", limit=1)
    assert ([item.id for item in found], total) == ([ids[3]], 4)
    assert history("worker-b") == ([], 0)
    with pytest.raises(InvalidId):
        history("worker-a", task_id="../x")


class TestReadingALog:
    """`tail` and `offset`."""

    @pytest.fixture
    def execution(self, services: Services, execution: Execution) -> Execution:
        """An execution whose log has 250 lines."""
        for number in range(1, 250):
            services.workspace.files.append(services.workspace.execution_log(execution), f"line {number}")
        return execution

    def test_the_last_hundred_lines_unless_told(self, services: Services, execution: Execution) -> None:
        page = services.executions.read_log(execution)
        assert (page.total, len(page.lines), page.lines[0], page.lines[-1]) == (250, 100, "line 150", "line 249")

    @pytest.mark.parametrize(
        ("tail", "offset", "first", "count"),
        [
            (1, None, "line 249", 1),
            (249, None, "line 1", 249),
            (1000, None, None, 250),
            (0, None, None, 0),
            (None, 0, None, 250),
            (None, 248, "line 248", 2),
            (None, 250, None, 0),
            (None, 9999, None, 0),
        ],
    )
    def test_as_many_as_asked_for(
        self,
        services: Services,
        execution: Execution,
        tail: int | None,
        offset: int | None,
        first: str | None,
        count: int,
    ) -> None:
        page = services.executions.read_log(execution, tail=tail, offset=offset)
        assert (len(page.lines), page.total) == (count, 250)
        assert first is None or page.lines[0] == first

    def test_tail_and_offset_exclude_each_other(self, services: Services, execution: Execution) -> None:
        with pytest.raises(InvalidArguments):
            services.executions.read_log(execution, tail=10, offset=0)

    def test_a_log_with_bytes_that_are_no_text_is_read_all_the_same(
        self, services: Services, execution: Execution
    ) -> None:
        services.workspace.execution_log(execution).write_bytes(b"\xff\xfe\nfine\n")
        assert services.executions.read_log(execution).lines[-1] == "fine"


def test_only_ones_own_execution_is_shown(services: Services, execution: Execution) -> None:
    assert services.executions.get("worker-a", execution.id) == execution
    assert services.executions.get(None, execution.id) == execution
    with pytest.raises(Unauthorized):
        services.executions.get("worker-b", execution.id)
    with pytest.raises(ExecutionNotFound):
        services.executions.get("worker-a", "exec_000000000000")
    with pytest.raises(InvalidId):
        services.executions.get("worker-a", "../../agents")
