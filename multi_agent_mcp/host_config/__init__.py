"""The configuration files by which a host starts an agent's server and runs its hooks (docs/hosts.md, What hosts do).

`entries` makes our entries, `merging` puts them into a file without losing its own, `configuration` knows each host's
files.
"""

from multi_agent_mcp.host_config.configuration import (
    HOSTS,
    HostConfiguration,
    backups,
    host_configuration,
    mcp_argument,
    mcp_environment,
    missing_settings,
    program_name,
)
from multi_agent_mcp.host_config.entries import SERVER_NAME
from multi_agent_mcp.host_config.programs import PROGRAMS

__all__ = [
    "HOSTS",
    "PROGRAMS",
    "SERVER_NAME",
    "HostConfiguration",
    "backups",
    "host_configuration",
    "mcp_argument",
    "mcp_environment",
    "missing_settings",
    "program_name",
]
