"""The commands of `refold`, each a thin module that imports what it needs when it runs."""

from __future__ import annotations

import click

from refold.cli.commands.backup import backup, restore
from refold.cli.commands.calls import tool_calls
from refold.cli.commands.demo import demo
from refold.cli.commands.doctor import doctor
from refold.cli.commands.erase import erase
from refold.cli.commands.events import events, export
from refold.cli.commands.evidence import evidence
from refold.cli.commands.importing import import_
from refold.cli.commands.migrate import migrate
from refold.cli.commands.proof import verify
from refold.cli.commands.rebuild import rebuild
from refold.cli.commands.replay import replay
from refold.cli.commands.resolving import resolve
from refold.cli.commands.running import resume, run
from refold.cli.commands.runs import runs
from refold.cli.commands.show import artifact, show
from refold.cli.commands.steering import cancel, pause, signal

COMMANDS: tuple[click.Command, ...] = (
    demo,
    run,
    resume,
    pause,
    signal,
    cancel,
    import_,
    runs,
    show,
    events,
    evidence,
    tool_calls,
    resolve,
    artifact,
    replay,
    verify,
    rebuild,
    export,
    erase,
    backup,
    restore,
    migrate,
    doctor,
)
"""In the order in which somebody meets them."""

runs.add_command(replay)  # `refold runs replay`: the name under which it is known from elsewhere.
