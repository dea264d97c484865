import { fileURLToPath } from "node:url"

export { MultiAgentMcp } from "./hooks.js"

const SERVER = { type: "local", command: ["multi-agent-mcp", "serve", "--plugin"], enabled: true, timeout: 660000 }
const SKILLS = fileURLToPath(new URL("skills", import.meta.url))

export const MultiAgentMcpServer = async () => ({
  config: async (config) => {
    config.mcp = { ipc: SERVER, ...config.mcp }
    config.skills = { ...config.skills, paths: [...(config.skills?.paths ?? []), SKILLS] }
  },
})
