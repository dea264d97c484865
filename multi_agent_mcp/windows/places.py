"""How many agents are at work at once (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.settings import AUTO
from multi_agent_mcp.windows.window_registry import TeamWindows

BUSY_PERCENT = 80
"""With this much of all processors in use nothing more is started."""
FREE_BYTES = 1 << 30
"""What has to be available of the memory: about what a host and the programs that it runs take."""
SAMPLE_SECONDS = 0.2


def has_place(windows: TeamWindows, agent: Agent) -> bool:
    """Whether a window may be opened for the agent: it is at work already, nobody is, or fewer than `at_most`. People
    are not counted. Call it with the windows' lock."""
    most = windows.services.session.settings.at_most
    if most is None or agent.may_be_human:
        return True
    busy = _at_work(windows)
    if agent.id in busy or not busy:
        return True
    return _is_machine_idle() if most == AUTO else len(busy) < int(most)


def _at_work(windows: TeamWindows) -> set[str]:
    """The agents of this machine whose program runs in a window of the team or elsewhere."""
    in_windows = {slot.agent_id for slot in windows.living}
    served = windows.services.sessions.served_purposes
    agents = (one.id for one in windows.services.agents.at_home().values() if not one.may_be_human)
    return {one for one in agents if one in in_windows or served(one) or windows.runs_elsewhere(Slot(one, "task"))}


def _is_machine_idle() -> bool:
    import psutil  # only `auto` needs it

    is_free = psutil.virtual_memory().available >= FREE_BYTES
    return is_free and psutil.cpu_percent(interval=SAMPLE_SECONDS) < BUSY_PERCENT
