"""Text written by agents is never executed by tmux or a shell on its way to a screen."""

from __future__ import annotations

import json
from pathlib import Path

from tests.end_to_end.support import Team, Terminal, line, wait_until


def hostile(touched: Path) -> list[str]:
    """Texts of which each would create the file `touched` if anything executed it."""
    return [
        f"#(touch {touched})",
        f"#{{?1,#(touch {touched}),}}",
        f"$(touch {touched})",
        f"`touch {touched}`",
        f"'; touch {touched}; '",
        f'"; touch {touched}; "',
        f"\n!touch {touched}\n",
        f"\x1b[201~\ntouch {touched}\n",
        f"; run-shell 'touch {touched}'",
    ]


def test_no_text_of_a_message_or_task_is_run_on_its_way(team: Team, terminal: Terminal) -> None:
    touched = Path(terminal.socket).with_name("x")  # a short name: a title holds 500 characters
    text = " ".join(hostile(touched))
    title = text.replace("\n", " ").replace("\x1b", " ")
    pane = terminal.pane()
    pane.belongs_to(team, "worker-a")
    team.services.workspace.registry.update("worker-a", name=text, ladder=["status_line", "tmux"])
    team.send("worker-a", text, subject=text)
    wait_until(lambda: pane.lines, "the doorbell is rung")
    task = team.ask("task", "add", title, "--description", text, "--assignee", "worker-a")["task_id"]
    team.ask("task", "status", task, "blocked", "--reason", title, "--as", "admin")
    header = json.dumps({"sender_id": text, "message_type": text})
    team.drop(team.path / "ipc" / "worker-a" / "forged.md", f"---\n{header}\n---\n\nx")
    team.run("doctor")
    terminal("display-message", "-p", "-t", pane.id, "#{E:@ipc_unread}")  # what a status line would make of it
    assert [heard.partition(" #")[0] for heard in pane.lines] == [line()]
    assert not touched.exists()
