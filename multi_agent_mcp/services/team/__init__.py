"""Who takes part: agents, their keys and signatures, a session directory from a team.yaml."""
