import { spawn } from "node:child_process"

const COMMAND = ["multi-agent-mcp", "hook", "--host", "opencode", "--plugin"]

const children = new Set() // the sessions of subagents

const hook = (event, facts) =>
  new Promise((resolve) => {
    const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
    const late = setTimeout(() => child.kill(), 10000)
    let said = ""
    child.stdout.on("data", (data) => { said += data })
    child.on("error", () => resolve({}))
    child.on("close", () => {
      clearTimeout(late)
      try { resolve(JSON.parse(said).hookSpecificOutput ?? {}) } catch { resolve({}) }
    })
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify({ hook_event_name: event, ...facts }))
  })

const seen = ({ tool, sessionID }) => ({
  tool_name: tool,
  session_id: sessionID,
  subagent: children.has(sessionID),
})

export const MultiAgentMcp = async () => ({
  event: async ({ event: { type, properties } }) => {
    if (type === "session.created" && properties?.info?.parentID) children.add(properties.info.id)
    else if (type === "session.created") await hook("SessionStart", { session_id: properties?.info?.id, source: "new" })
    else if (type === "session.compacted") await hook("PostCompact", seen(properties))
  },
  "experimental.session.compacting": async (input) => {
    await hook("PreCompact", seen(input))
  },
  "tool.execute.before": async (input, { args }) => {
    const answer = await hook("PreToolUse", { ...seen(input), tool_input: args, cwd: process.cwd() })
    if (answer.permissionDecision === "deny") throw new Error(answer.permissionDecisionReason)
  },
  "tool.execute.after": async (input, result) => {
    if (typeof result?.output !== "string") return
    const call = { ...seen(input), tool_input: input.args, cwd: process.cwd() }
    const { additionalContext } = await hook("PostToolUse", call)
    if (additionalContext) result.output += `\n\n${additionalContext}`
  },
})
