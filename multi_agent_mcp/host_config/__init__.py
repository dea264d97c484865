"""How a host is told to start an agent's server and to run its hooks (docs/hosts.md, What hosts do).

`entries` says what goes into a host's files, `merging` puts it beside what stands there, `configuration` knows which
files those are.
"""

from multi_agent_mcp.host_config.configuration import HOSTS, HostConfiguration, host_configuration, mcp_argument

__all__ = ["HOSTS", "HostConfiguration", "host_configuration", "mcp_argument"]
