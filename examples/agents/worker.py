"""A Worker: does what it is assigned, reports half of it and then the whole."""

from __future__ import annotations

import anyio
from scripted import scripted_agent, told


async def main() -> None:
    async with scripted_agent() as me:
        action = await me.next_work()
        while action["action"] == "work":
            task = action["task"]
            me.say(f"working on {task['task_id']}: {task['title']}")
            checklist = [
                {"text": told("実装", "implementation"), "completed": True},
                {"text": told("テスト", "tests"), "completed": False},
            ]
            await me.call("report_task_progress", task_id=task["task_id"], progress=50, checklist=checklist)
            message = told("実装とテストが完了しました。", "Implemented and tested.")
            await me.call("report_task_completion", task_id=task["task_id"], status="completed", message=message)
            action = await me.call("get_next_action")


anyio.run(main)
