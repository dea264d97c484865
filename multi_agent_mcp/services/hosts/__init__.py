"""How a host is told to start an agent's server and to run its hooks (HOSTS.md §3, §6, §7).

`entries` says what goes into a host's files, `merging` puts it beside what stands there, `configuration` knows which
files those are.
"""

from multi_agent_mcp.services.hosts.configuration import HOSTS, HostConfiguration, host_configuration, mcp_argument

__all__ = ["HOSTS", "HostConfiguration", "host_configuration", "mcp_argument"]
