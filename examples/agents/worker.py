"""A Worker: does what the Admin assigns, reports half of it and then the whole."""

from __future__ import annotations

import anyio
from scripted import scripted_agent, told


async def main() -> None:
    async with scripted_agent() as me:
        assigned = [message for message in await me.next_mail() if message["message_type"] == "task_assign"]
        for mail in assigned:
            task_id = mail["metadata"]["task_id"]
            me.say(f"working on {task_id}: {mail['content']}")
            checklist = [
                {"text": told("実装", "implementation"), "completed": True},
                {"text": told("テスト", "tests"), "completed": False},
            ]
            await me.call("report_task_progress", task_id=task_id, progress=50, checklist=checklist)
            message = told("実装とテストが完了しました。", "Implemented and tested.")
            await me.call("report_task_completion", task_id=task_id, status="completed", message=message)


anyio.run(main)
