"""The configuration files by which a host starts an agent's server and runs its hooks (docs/hosts.md, What hosts do).

`hosts` has the configuration that each host reads (`hosts.yaml`), `merging` merges it into existing files, and
`configuration` makes and writes the files of one agent.
"""

from multi_agent_mcp.host_config.configuration import HostConfiguration, HostConfigurations, program_name
from multi_agent_mcp.host_config.hosts import HOSTS, SERVER_NAME

__all__ = ["HOSTS", "SERVER_NAME", "HostConfiguration", "HostConfigurations", "program_name"]
