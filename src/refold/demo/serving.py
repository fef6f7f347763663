"""The conventions of the demo's processes: where they log, how they say their ports, when they end."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from refold.demo.faults import Control, Faulty
from refold.demo.log import ActLog
from refold.demo.wire import Service, listen
from refold.errors import RefoldError

__all__ = ["arguments", "serve"]


def arguments(program: str, purpose: str) -> argparse.ArgumentParser:
    """The options that all services have; one adds its own."""
    parser = argparse.ArgumentParser(prog=program, description=purpose)
    parser.add_argument("--port", type=int, default=0, help="the port on loopback; 0, the default, takes a free one")
    parser.add_argument("--log", type=Path, required=True, help="where each act is written before it is answered")
    parser.add_argument(
        "--control", action="store_true", help="open a second port on which faults are ordered, and print it second"
    )
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="end when standard input does, as when the starter died"
    )
    return parser


def serve(options: argparse.Namespace, make: Callable[[ActLog], Service]) -> None:
    """Serve until killed. The first line of standard output is the port, the second that of the control if asked for.

    Nothing is done on the way out: an act is on disk before it is answered, so that any moment is a good one to die.
    """
    if options.until_stdin_closes:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        service = make(ActLog(options.log))
        asyncio.run(_serve(service, options.port, options.control))
    except KeyboardInterrupt:
        return
    except RefoldError as problem:
        print(f"{problem.message} {problem.remedy}", file=sys.stderr)
        sys.exit(problem.exit_status)


async def _serve(service: Service, port: int, controlled: bool) -> None:
    servers = []
    if controlled:
        faulty = Faulty(service)
        servers = [await listen(faulty, port, takes=faulty.takes), await listen(Control(faulty), 0)]
    else:
        servers = [await listen(service, port)]
    for server in servers:
        print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def _end_with_stdin() -> None:
    # Not sys.stdin: its lock, held here for ever, would break the interpreter's own end.
    while os.read(0, 4096):
        pass
    os._exit(0)
