"""An Admin that is woken to review a task, looks at it, and approves."""

from __future__ import annotations

import anyio
from scripted import scripted_agent, told


async def main() -> None:
    async with scripted_agent() as me:
        while (action := await me.call("get_next_action"))["action"] != "review":
            await me.wait_for_doorbell()
            for notice in (await me.call("get_notifications"))["notifications"]:
                me.say(f"{notice['message']}: {notice['instruction']}")
        task = action["tasks"][0]
        me.say(f"{task['title']}: “{task['summary']}”, receipts {task['receipts']}")
        reason = told("確認しました。", "I have looked at it.")
        await me.call("approve_task_request", task_id=task["task_id"], approve=True, reason=reason)
        for mail in await me.next_mail():
            me.say(f"{mail['message_type']}: {mail['metadata']['proof']}")


anyio.run(main)
