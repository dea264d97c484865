from multi_agent_mcp.toolkit.agent import Interrupted as Interrupted
from multi_agent_mcp.toolkit.agent import Refused as Refused
from multi_agent_mcp.toolkit.team import Team as Team

__all__ = ["Interrupted", "Refused", "Team", "__version__"]

__version__: str
