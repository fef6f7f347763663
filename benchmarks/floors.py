"""The least work that gives the same result, with nothing but apsw, msgspec and hashlib."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path

import apsw
import msgspec

from refold.events.catalog import CATALOG
from refold.events.content import PREFIX
from refold.events.envelope import HEADER, View
from refold.projections.rows import RunRow, StepRow

_FOLDED = "SELECT id & 4294967295, type, version, recorded_at, occurred_at, actor, site, facts, view FROM events"
_PROVED = (
    "SELECT id & 4294967295, format, type, version, epoch, recorded_at, occurred_at, actor, site, cause, "
    "facts, content_digest, content, view_digest, view, hash FROM events"
)


def open_plain(path: Path) -> apsw.Connection:
    """A connection with the page cache that refold's readers have."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.execute("PRAGMA cache_size = -16384")
    return connection


def fold(connection: apsw.Connection) -> Iterator[StepRow | RunRow]:
    """Reads, decodes and reduces every event of a file of steps: one row a step and a run, handed out when
    it is finished.
    """
    decoders = {each.name: each.decoder.decode for each in CATALOG}
    shown = msgspec.json.Decoder(View).decode
    run_id = "run"
    run: RunRow | None = None
    for seq, type_, _, at, occurred, _, site, encoded, view in connection.execute(_FOLDED):
        facts = decoders[type_](encoded)
        seen = None if view is None else shown(view[PREFIX:])
        if occurred is not None:
            at = occurred
        if type_ == "step.completed":
            yield StepRow(
                facts.step_id, run_id, seq, facts.type, facts.name, "succeeded", at - facts.duration_us, seq, at,
                facts.duration_us / 1000, 1, site or None, seen and seen.input, seen and seen.output,
            )  # fmt: skip
        elif type_ == "run.created":
            run = RunRow(
                run_id,
                facts.workflow,
                "queued",
                None,
                facts.origin,
                facts.effect_domain,
                facts.lineage_root,
                1,
                at,
            )
        elif run is not None:
            run.status = type_
            yield run


def write_steps(read: apsw.Connection, write: apsw.Connection, at_once: int = 20_000) -> None:
    """The same, with the steps' rows put into a table that has no key and no index."""
    write.execute(f"CREATE TABLE steps ({', '.join(StepRow.__struct_fields__)})")
    insert = f"INSERT INTO steps VALUES ({', '.join('?' * len(StepRow.__struct_fields__))})"
    astuple = msgspec.structs.astuple
    write.execute("BEGIN")
    rows = (astuple(row) for row in fold(read) if type(row) is StepRow)
    while page := list(islice(rows, at_once)):
        write.executemany(insert, page)
    write.execute("COMMIT")


def verify(connection: apsw.Connection) -> int:
    """Reads every event and hashes the same bytes as its proof does: content, view, and header with facts. SQLite
    checks the same tables.
    """
    count = 0
    header = bytes(HEADER.size)
    for row in connection.execute(_PROVED):
        content, view = row[12], row[14]
        if content is not None and sha256(content).digest() != row[11]:
            raise ValueError("content")
        if view is not None and sha256(view).digest() != row[13]:
            raise ValueError("view")
        sha256(header + row[2].encode() + row[10]).digest()
        count += 1
    for table in ("stream_heads", "events", "blobs"):
        connection.execute(f"PRAGMA integrity_check({table})").fetchall()
    return count
