"""UC020: the task session delegates, the two chat sessions play, each woken by its doorbell."""

from __future__ import annotations

import os

import anyio
from scripted import ScriptedAgent, scripted_agent, told

WORDS = told(
    "りんご ごりら らっぱ ぱんだ だちょう うさぎ ぎんこう うま まつり りす すいか かもめ",
    "apple elephant tiger rabbit table eagle egg gold dog grape eel lemon",
).split()
LOOK_SECONDS = 0.5


async def task_session(me: ScriptedAgent) -> None:
    """Hands the game to the chat session and looks now and then how it goes, as the instruction says."""
    action = await me.call("get_next_action", timeout_seconds=60)
    me.say(f"{action['action']}: {action['task']['title']}")
    purpose = told("しりとり6往復", "Six rounds of word chain")
    delegated = await me.call("delegate_to_chat_session", target_agent_id="worker-b", purpose=purpose)
    me.say(delegated["instruction"].splitlines()[0])
    while True:
        found = await me.call("get_task_conversations")
        if any(item["status"] == "ended" for item in found["conversations"]):
            break
        await anyio.sleep(LOOK_SECONDS)
    words = [message["content"] for message in found["conversations"][0]["messages"]]
    me.say(" → ".join(words))
    summary = told(f"しりとり完了: {len(words)}語", f"Word chain finished: {len(words)} words")
    await me.call("report_completed", result="success", summary=summary)


async def chat_session(me: ScriptedAgent) -> None:
    """Begins the conversation if it was delegated, then answers every word with the next one."""
    action = await me.call("get_next_action")
    if action["action"] == "process_delegation":
        delegation = action["delegation"]
        await me.call(
            "start_conversation",
            target_agent_id=delegation["target_agent_id"],
            initial_message=WORDS[0],
            delegation_id=delegation["delegation_id"],
        )
    while True:
        for message in await me.next_mail():
            conversation_id = message["metadata"]["conversation_id"]
            if message["metadata"].get("ended"):
                return
            me.say(f"{message['sender_id']}: {message['content']}")
            following = WORDS.index(message["content"]) + 1
            if following == len(WORDS):
                await me.call("end_conversation", conversation_id=conversation_id)
                return
            await me.call("send_message", conversation_id=conversation_id, content=WORDS[following])


async def main() -> None:
    async with scripted_agent() as me:
        if os.environ.get("MULTI_AGENT_MCP_PURPOSE") == "chat":
            await chat_session(me)
        else:
            await task_session(me)


anyio.run(main)
