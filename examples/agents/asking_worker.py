"""A Worker that needs a decision: it asks, parks its task, does another one, and goes on when the answer is there."""

from __future__ import annotations

from typing import Any

import anyio
from scripted import ScriptedAgent, scripted_agent, told


async def next_work(me: ScriptedAgent) -> dict[str, Any]:
    action = await me.call("get_next_action", timeout_seconds=60)
    me.say(f"{action['action']}: {action['task']['title']}")
    return action


async def main() -> None:
    async with scripted_agent() as me:
        await next_work(me)
        question = told("どの色にしますか？", "Which colour?")
        asked = await me.call("ask", question=question, choices=[told("青", "blue"), told("赤", "red")], park=True)
        me.say(f"{asked['question_id']}: {asked['instruction']}")
        await next_work(me)
        await me.call("report_completed", result="success", summary=told("片付けました。", "Tidied up."))
        answers: list[dict[str, Any]] = []
        while not answers:
            await me.wait_for_doorbell()
            notices = (await me.call("get_notifications"))["notifications"]
            answers = [notice for notice in notices if notice["action"] == "answered"]
        me.say(answers[0]["message"])
        await next_work(me)
        summary = told("{} で塗りました。", "Painted it {}.").format(answers[0]["answer"])
        await me.call("report_completed", result="success", summary=summary)


anyio.run(main)
