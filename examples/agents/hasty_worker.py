"""A Worker that says "done" too early, as models do: its server runs the checks, and only what passes is believed."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
from scripted import scripted_agent, told

WORK = Path(os.environ["MULTI_AGENT_MCP_ROOT"]).parent / "work"


async def main() -> None:
    WORK.mkdir(exist_ok=True)
    os.chdir(WORK)  # where its checks run
    async with scripted_agent() as me:
        action = await me.call("get_next_action", timeout_seconds=60)
        me.say(f"{action['action']}: {action['task']['title']}, done when {action['task']['done_when']}")
        for text in ("helo", "hello"):
            Path("greeting.txt").write_text(f"{text}\n", encoding="utf-8")
            summary = told("完成しました。テストも通っています。", "It is finished, and all tests pass.")
            report = await me.call("report_completed", result="success", summary=summary)
            me.say(f"“{summary}” → check {report['check']}, the task is {report['status']}, now {report['action']}")
            for line in report.get("last_lines", "").splitlines():
                me.say(f"    {line}")


anyio.run(main)
