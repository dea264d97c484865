"""The configuration files by which a host starts an agent's server and runs its hooks (docs/hosts.md, What hosts do).

`templates` fills what `hosts/*.yaml` says of a host, `merging` merges it into existing files, and `configuration` makes
and writes the files of one agent.
"""

from multi_agent_mcp.host_config.configuration import (
    MCP_CONFIG,
    HostConfiguration,
    HostConfigurations,
    program_name,
)
from multi_agent_mcp.host_config.templates import SERVER_NAME

__all__ = ["MCP_CONFIG", "SERVER_NAME", "HostConfiguration", "HostConfigurations", "program_name"]
