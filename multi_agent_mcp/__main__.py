"""`multi-agent-mcp` and `python -m multi_agent_mcp`."""

from __future__ import annotations


def main() -> None:
    """The command line."""
    from multi_agent_mcp.cli.main import app

    app()


if __name__ == "__main__":
    main()
