import { spawn } from "node:child_process"

const COMMAND = ["multi-agent-mcp", "hook", "--host", "opencode", "--plugin"]

const children = new Set() // the sessions of subagents
const known = new Set() // the sessions that were told of; one that is continued is not created
const briefings = new Map() // session → the briefing after its last compaction, and the message that holds it

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

const begin = async (id, source) => {
  if (known.has(id) || children.has(id)) return
  known.add(id)
  await hook("SessionStart", { session_id: id, source })
}

const brief = (facts) => {
  if (briefings.has(facts.session_id)) return
  const told = hook("PostCompact", facts).then(() => hook("UserPromptSubmit", facts))
  briefings.set(facts.session_id, { told, message: undefined })
}

const RULES = {} // what the team denies: set after all settings were read, and never more than they allow

const entries = (rules) => Object.entries(typeof rules === "string" ? { "*": rules } : rules ?? {})

const rule = (settings) => {
  const permission = Object.fromEntries(entries(settings.permission))
  const { bash, edit, "*": usual } = permission
  delete permission.bash
  delete permission.edit
  const denied = Object.fromEntries(RULES.bash.map((pattern) => [pattern, "deny"]))
  permission.bash = Object.fromEntries([...entries(bash).filter(([pattern]) => !(pattern in denied)), ...entries(denied)])
  const own = Object.fromEntries(entries(edit))
  const files = {}
  for (const [pattern, allowed] of RULES.edit ?? []) {
    delete files[pattern]
    files[pattern] = allowed ? own["*"] ?? usual ?? "allow" : "deny"
  }
  const kept = entries(edit).filter(([pattern, action]) => !RULES.edit || (action !== "allow" && !(pattern in files)))
  permission.edit = { ...files, ...Object.fromEntries(kept) }
  settings.permission = permission
}

export const MultiAgentMcp = async () => ({
  config: async (config) => {
    if (!RULES.bash) return
    rule(config)
    const agents = { ...(RULES.edit && { plan: {}, explore: {} }), ...config.agent } // these two edit nothing by themselves
    for (const [name, settings] of Object.entries(agents)) {
      if (settings.permission) rule(settings)
      else if (RULES.edit && ["plan", "explore"].includes(name)) settings.permission = { edit: "deny" }
    }
    config.agent = agents
  },
  event: async ({ event: { type, properties } }) => {
    if (type === "session.created" && properties?.info?.parentID) children.add(properties.info.id)
    else if (type === "session.created") await begin(properties?.info?.id, "new")
    else if (type === "session.compacted") brief(seen(properties))
  },
  "experimental.session.compacting": async (input) => {
    briefings.delete(input.sessionID)
    await hook("PreCompact", seen(input))
  },
  // before the request with which it goes on by itself; the event comes when it may have been sent
  "experimental.compaction.autocontinue": async (input) => brief(seen(input)),
  "experimental.chat.messages.transform": async (_, { messages }) => {
    const newest = messages.findLast(({ info }) => info.role === "user")?.info
    const briefing = briefings.get(newest?.sessionID)
    if (!briefing) return
    briefing.message ??= newest.id
    const { additionalContext: text } = await briefing.told
    const holder = messages.find(({ info }) => info.id === briefing.message)
    if (!text || !holder || holder.parts.some((part) => part.text === text)) return
    const place = { sessionID: newest.sessionID, messageID: holder.info.id }
    holder.parts.push({ id: `prt_briefing_${holder.info.id}`, ...place, type: "text", synthetic: true, text })
  },
  "tool.execute.before": async (input, { args }) => {
    await begin(input.sessionID, "resume")
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
