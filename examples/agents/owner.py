"""The Owner: hands one task to the Admin, waits without polling, and reads the report."""

from __future__ import annotations

import anyio
from scripted import Refused, scripted_agent, told


async def main() -> None:
    async with scripted_agent() as me:
        task = await me.call(
            "send_task",
            agent_id="admin",
            title=told("ログイン画面を作る", "Build the login page"),
            content=told(
                "フォームとAPIを作り、終わったら報告してください。", "Build the form and the API, then report."
            ),
        )
        me.say(f"send_task → {task['task_id']}, waiting: {task['waiting']}")
        try:
            await me.call("send_message", receiver_id="worker-a", content=told("まだですか？", "Not yet?"))
        except Refused as refused:
            me.say(f"not while waiting: {refused}")
        while True:
            for message in await me.next_mail():
                me.say(f"{message['message_type']} from {message['sender_id']}: {message['content']}")
                if message["message_type"] == "task_complete":
                    released = await me.call("unlock_owner_wait")
                    me.say(f"wait-lock still set: {released['waiting_before']}")
                    return


anyio.run(main)
