"""A Worker that makes its check easier, not its work right, as models do: the check passes, and proves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
from scripted import scripted_agent, told

ROOT = Path(os.environ["MULTI_AGENT_MCP_ROOT"])
WORK = ROOT.parent / "work"
SETTINGS = ROOT / os.environ["MULTI_AGENT_MCP_SESSION"] / "session.yaml"


async def main() -> None:
    WORK.mkdir(exist_ok=True)
    os.chdir(WORK)  # where its checks run
    async with scripted_agent() as me:
        action = await me.call("get_next_action", timeout_seconds=60)
        me.say(f"{action['action']}: {action['task']['title']}, done when {action['task']['done_when']}")
        Path("greeting.txt").write_text("helo\n", encoding="utf-8")
        before = SETTINGS.read_text(encoding="utf-8")
        SETTINGS.write_text(before.replace("= hello", "= helo"), encoding="utf-8")
        summary = told("完成しました。テストも通っています。", "It is finished, and all tests pass.")
        report = await me.call("report_completed", result="success", summary=summary)
        me.say(f"“{summary}” → check {report['check']}, the task is {report['status']}, now {report['action']}")
        while (action := await me.call("get_next_action"))["action"] != "work":
            await me.wait_for_doorbell()  # somebody has looked, and gives it back
            await me.call("get_notifications")
        Path("greeting.txt").write_text("hello\n", encoding="utf-8")
        report = await me.call("report_completed", result="success", summary=told("直しました。", "It is mended."))
        me.say(f"check {report['check']}, the task is {report['status']}")


anyio.run(main)
