"""The configuration files by which a host starts an agent's server and runs its hooks (docs/hosts.md, What hosts do).

`hosts` holds what each host reads (`hosts.yaml`), `merging` puts it into a file without losing its own, `configuration`
makes and writes one agent's files.
"""

from multi_agent_mcp.host_config.configuration import HostConfiguration, HostConfigurations, program_name
from multi_agent_mcp.host_config.hosts import HOSTS, SERVER_NAME

__all__ = ["HOSTS", "SERVER_NAME", "HostConfiguration", "HostConfigurations", "program_name"]
