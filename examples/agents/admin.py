"""The Admin: splits the Owner's task between the Workers, follows their reports, reports to the Owner."""

from __future__ import annotations

import anyio
from scripted import ScriptedAgent, scripted_agent, told

PARTS = {"worker-a": told("ログインフォーム", "the login form"), "worker-b": told("ログインAPI", "the login API")}


async def hand_out(me: ScriptedAgent) -> set[str]:
    """Returns the parts' ids."""
    parts = set()
    for worker, title in PARTS.items():
        part = await me.call(
            "send_task", agent_id=worker, title=title, content=told(f"{title}を作ってください。", f"Build {title}.")
        )
        me.say(f"send_task {worker} → {part['task_id']}")
        parts.add(part["task_id"])
    return parts


async def main() -> None:
    async with scripted_agent() as me:
        task_id = ""
        open_parts: set[str] = set()
        while not task_id or open_parts:
            for mail in await me.next_mail():
                me.say(f"{mail['message_type']} from {mail['sender_id']}: {mail['subject']}")
                if mail["message_type"] == "task_assign":
                    task_id = mail["metadata"]["task_id"]
                    open_parts |= await hand_out(me)
                elif mail["message_type"] == "task_complete":
                    open_parts.discard(mail["metadata"].get("task_id"))
        dashboard = (await me.call("get_dashboard"))["dashboard"]
        me.say(f"dashboard: {dashboard['counts']}")
        message = told("両方とも完了しました。", "Both are done.")
        await me.call("report_task_completion", task_id=task_id, status="completed", message=message)


anyio.run(main)
