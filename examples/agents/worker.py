"""A Worker: does what the Admin assigns, reports half of it and then the whole."""

from __future__ import annotations

import anyio
from scripted import scripted_agent


async def main() -> None:
    async with scripted_agent() as me:
        assigned = [message for message in await me.next_mail() if message["message_type"] == "task_assign"]
        for message in assigned:
            task_id = message["metadata"]["task_id"]
            me.say(f"working on {task_id}: {message['content']}")
            checklist = [{"text": "実装", "completed": True}, {"text": "テスト", "completed": False}]
            await me.call("report_task_progress", task_id=task_id, progress=50, checklist=checklist)
            await me.call(
                "report_task_completion", task_id=task_id, status="completed", message="実装とテストが完了しました。"
            )


anyio.run(main)
