"""A Worker that would go on for ever: it stops only because an interrupt replaces the answer of its next call."""

from __future__ import annotations

import anyio
from scripted import scripted_agent, told

STEP_SECONDS = 0.2


async def main() -> None:
    async with scripted_agent() as me:
        action = await me.call("get_next_action", timeout_seconds=60)
        me.say(f"{action['action']}: {action['task']['title']}")
        while "interrupted" not in (answer := await me.call("get_my_tasks")):
            await anyio.sleep(STEP_SECONDS)
        me.say(answer["interrupted"])
        for notice in (await me.call("get_notifications"))["notifications"]:
            me.say(f"{notice['message']}: {notice['instruction']}")
        summary = told("指示により中断しました。", "Stopped as told.")
        report = await me.call("report_completed", result="blocked", summary=summary)
        me.say(f"{report['task_id']} is {report['status']}, now {report['action']}")


anyio.run(main)
