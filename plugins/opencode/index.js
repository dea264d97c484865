export { MultiAgentMcp } from "./hooks.js"

const SERVER = { type: "local", command: ["multi-agent-mcp", "serve", "--plugin"], enabled: true, timeout: 660000 }

export const MultiAgentMcpServer = async () => ({
  config: async (config) => {
    config.mcp = { ipc: SERVER, ...config.mcp }
  },
})
