// The official TypeScript client against our server, once in each way to agree on a version.
// node conversation.mjs MODULES COMMAND [ARGUMENT…]: prints a JSON object, by way, of what it saw.
import { pathToFileURL } from "node:url";

const [modules, command, ...args] = process.argv.slice(2);
const sdk = (file) => import(pathToFileURL(`${modules}/@modelcontextprotocol/client/dist/${file}`));
const { Client } = await sdk("index.mjs");
const { StdioClientTransport } = await sdk("stdio.mjs");

const seen = {};
for (const [name, mode] of Object.entries({ legacy: "legacy", auto: "auto", pinned: { pin: "2026-07-28" } })) {
  const client = new Client({ name: "conversation", version: "1" }, { versionNegotiation: { mode } });
  await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));
  const { tools } = await client.listTools();
  const sent = await client.callTool({ name: "send_message", arguments: { receiver_id: "worker-a", content: name } });
  const refused = await client.callTool({ name: "send_message", arguments: { receiver_id: "nobody", content: name } });
  seen[name] = {
    version: client.getNegotiatedProtocolVersion(),
    instructions: client.getInstructions(),
    tools: tools.map((tool) => [tool.name, tool.title, tool.annotations]),
    sent: sent.structuredContent,
    refused: [refused.isError, refused.structuredContent.error],
  };
  await client.close();
}
console.log(JSON.stringify(seen));
