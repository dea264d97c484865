"""A Worker with a long task: it leaves a hand-off after each step, and half-way it rests until somebody calls. Started
again, it goes on after the last step, as its briefing says."""

from __future__ import annotations

import re

import anyio
from scripted import scripted_agent, told

STEPS = 4


async def main() -> None:
    async with scripted_agent() as me:
        action = await me.call("get_next_action")
        done = [int(step) for step in re.findall(rf"\[(\d)/{STEPS}\]", action.get("briefing", ""))]
        task_id = action["task"]["task_id"]
        if not done:
            hello = told(f"{me.name} です。始めます。", f"I am {me.name}. I begin.")
            await me.call("send_message", receiver_id="admin", content=hello)
        for step in range(max(done, default=0) + 1, STEPS + 1):
            me.say(f"step {step}")
            await me.call("report_task_progress", task_id=task_id, progress=step * 100 // STEPS)
            await me.call("hand_off", content=told(f"[{step}/{STEPS}] まで済み", f"[{step}/{STEPS}] are done"))
            if step == STEPS // 2 and not done:
                await me.wait_for_doorbell()
        await me.call("report_completed", result="success", summary=told("完了しました。", "Done."))


anyio.run(main)
