"""The hooks for OpenCode: a plugin in JavaScript."""

from __future__ import annotations

import json
from collections.abc import Sequence

_PLUGIN = """\
import { spawn } from "node:child_process"

const COMMAND = %s

const hook = (event, tool) =>
  new Promise((resolve) => {
    const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
    const late = setTimeout(() => child.kill(), %d000)
    let said = ""
    child.stdout.on("data", (data) => { said += data })
    child.on("error", () => resolve({}))
    child.on("close", () => {
      clearTimeout(late)
      try { resolve(JSON.parse(said).hookSpecificOutput ?? {}) } catch { resolve({}) }
    })
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify({ hook_event_name: event, tool_name: tool }))
  })

export const MultiAgentMcp = async () => ({
  "tool.execute.before": async ({ tool }) => {
    const answer = await hook("PreToolUse", tool)
    if (answer.permissionDecision === "deny") throw new Error(answer.permissionDecisionReason)
  },
  "tool.execute.after": async ({ tool }, result) => {
    if (typeof result?.output !== "string") return
    const { additionalContext } = await hook("PostToolUse", tool)
    if (additionalContext) result.output += `\\n\\n${additionalContext}`
  },
})
"""


def opencode_plugin(command: Sequence[str], seconds: int) -> str:
    """Returns a plugin that runs this command before and after each tool; failure or timeout counts as no answer."""
    return _PLUGIN % (json.dumps(list(command), ensure_ascii=False), seconds)
