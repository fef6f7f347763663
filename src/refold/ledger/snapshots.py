"""Snapshots: taken from a fold, and trusted only when chain, code and bytes agree."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from hashlib import sha256

import msgspec

from refold.events.envelope import Head, StreamRef
from refold.ledger.port import Snapshot
from refold.projections import FoldState, freeze, thaw

_log = logging.getLogger("refold.ledger.snapshots")


def take_snapshot(state: FoldState, head: Head, fingerprint: str) -> Snapshot:
    """The fold's open state, bound to the event it stands at and to the code that folded it."""
    data = freeze(state)
    return Snapshot(head.seq, head.hash, fingerprint, sha256(data).digest(), data)


def choose(
    ref: StreamRef, snapshots: Iterable[Snapshot], hash_at: dict[int, bytes], head_seq: int, fingerprint: str
) -> FoldState | None:
    """The fold at the newest snapshot that can be trusted; each that cannot is passed over with a logged reason.

    `hash_at` holds the chain's hashes at the snapshots' seqs.
    """
    for snapshot in snapshots:
        why = _distrust(snapshot, hash_at, head_seq, fingerprint)
        if why is None:
            try:
                return thaw(ref, snapshot.state)
            except msgspec.MsgspecError as error:
                why = f"its state cannot be read: {error}"
        level = logging.ERROR if snapshot.seq > head_seq else logging.WARNING
        _log.log(level, "snapshot of %s at seq %d is not used: %s", ref.stream, snapshot.seq, why)
    return None


def _distrust(snapshot: Snapshot, hash_at: dict[int, bytes], head_seq: int, fingerprint: str) -> str | None:
    if snapshot.seq > head_seq:
        return f"it stands beyond the head, which is at seq {head_seq}"
    if snapshot.fingerprint != fingerprint:
        return "it was folded by other code"
    if hash_at.get(snapshot.seq) != snapshot.hash:
        return "the chain has another hash there"
    if sha256(snapshot.state).digest() != snapshot.state_digest:
        return "its bytes do not match their digest"
    return None
