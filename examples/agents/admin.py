"""The Admin: splits the Owner's task between the Workers, follows their reports, reports to the Owner."""

from __future__ import annotations

import anyio
from scripted import ScriptedAgent, scripted_agent

PARTS = {"worker-a": "ログインフォーム", "worker-b": "ログインAPI"}


async def hand_out(me: ScriptedAgent) -> None:
    for worker, title in PARTS.items():
        part = await me.call("send_task", agent_id=worker, title=title, content=f"{title}を作ってください。")
        me.say(f"send_task {worker} → {part['task_id']}")


async def main() -> None:
    async with scripted_agent() as me:
        task_id = ""
        finished: set[str] = set()
        while finished != set(PARTS):
            for message in await me.next_mail():
                me.say(f"{message['message_type']} from {message['sender_id']}: {message['subject']}")
                if message["message_type"] == "task_assign":
                    task_id = message["metadata"]["task_id"]
                    await hand_out(me)
                elif message["message_type"] == "task_complete":
                    finished.add(message["sender_id"])
        dashboard = (await me.call("get_dashboard"))["dashboard"]
        me.say(f"dashboard: {dashboard['counts']}")
        await me.call("report_task_completion", task_id=task_id, status="completed", message="両方とも完了しました。")


anyio.run(main)
