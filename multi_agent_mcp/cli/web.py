"""`web`: the Owner's console in a browser."""

from __future__ import annotations

import sys

import click

from multi_agent_mcp.cli.context import SessionContext, session_command
from multi_agent_mcp.cli.output import print_error


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="The port on 127.0.0.1; 0 is any free one (default: that of the last time, if it is free).",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the link in your browser.")
@session_command(acting=True)
def web(context: SessionContext, port: int | None, open_browser: bool) -> None:
    """Show the board, agents, messages and timeline of a session in a browser, live, until Ctrl-C.

    The link works once; the browser that opens it keeps a cookie. The server listens on this machine only.
    """
    from multi_agent_mcp.web.opening import LinkPage
    from multi_agent_mcp.web.serving import serve  # starlette and uvicorn are for this command alone

    page = LinkPage()

    def ready(link: str) -> None:
        context.answer({"url": link}, [link])
        sys.stdout.flush()  # a program that starts us waits for this line
        if open_browser:
            page.open(link, failed=lambda: print_error(context.texts("web.no_browser")))

    serve(context.services, port, context.acting, ready, spent=page.remove)
