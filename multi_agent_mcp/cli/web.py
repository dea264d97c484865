"""`web`: the Owner's console in a browser."""

from __future__ import annotations

import sys
import webbrowser
from typing import Annotated

import typer

from multi_agent_mcp.cli.context import As, Json, Root, Session, session_context


def web(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port on 127.0.0.1; 0 is any free one.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the link in your browser.")] = False,
    root: Root = None,
    session: Session = None,
    acting: As = None,
    as_json: Json = False,
) -> None:
    """Show the board, agents, messages and timeline of a session in a browser, live, until Ctrl-C.

    The link works once; the browser that opens it keeps a cookie. The server listens on this machine only.
    """
    from multi_agent_mcp.web.serving import serve  # starlette and uvicorn are for this command alone

    with session_context(root, session, acting, as_json=as_json) as context:

        def ready(link: str) -> None:
            context.show({"url": link}, [link])
            sys.stdout.flush()  # a program that starts us waits for this line
            if open_browser:
                webbrowser.open(link)

        serve(context.services, port, acting, ready)
