"""The members of a session: agents, their keys and signatures, and a session directory made from a team.yaml."""
