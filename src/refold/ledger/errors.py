"""What a ledger refuses, and how a commit can fail."""

from __future__ import annotations

from refold.errors import RefoldError


class Fenced(RefoldError):
    """Another process took the stream over, or wrote to it. This writer's uncommitted events were dropped.

    Every commit compares the stream's head (seq, hash, epoch) with what the writer last knew. A process that was
    frozen past its lease learns here that it was replaced; none of what it had in memory is merged or renumbered.
    """

    code = "fenced"
    exit_status = 6
    remedy = "Open the stream again; what the other writer committed is there."


class StreamOwned(RefoldError):
    """The stream has a living writer. Only its lease's end, its death or its release lets another one in."""

    code = "stream_owned"
    exit_status = 6
    remedy = "Wait for the owner, or stop it; a dead owner's stream can be taken over at once."


class StreamClosed(RefoldError):
    """The run has ended; its stream takes no more events, so that its last hash is final."""

    code = "stream_closed"
    exit_status = 6
    remedy = "Later facts (feedback, resolutions, erasure) go to the run's annex."


class LedgerClosed(RefoldError):
    """The ledger was closed, and something that was made with it is used all the same."""

    code = "ledger_closed"
    remedy = "Open it again. Runs that had not ended go on then."


class StreamFull(RefoldError):
    """The stream holds as many events as one can: 2^32 - 1."""

    code = "stream_full"
    exit_status = 6
    remedy = "Go on in another run, and name this one as its parent."


class RunNotFound(RefoldError):
    """There is no such run in this scope. A run of another scope is answered the same way."""

    code = "run_not_found"
    exit_status = 2
    remedy = "`refold runs` lists the runs of a scope; `--scope tenant/workspace` chooses another."


class KeyConflict(RefoldError):
    """A run with this key exists with another workflow or other input, or another intent has this idempotency key. A
    key names one piece of work for ever.

    Inputs are compared by the digest that `run.created` holds, so this is found after an erasure as well. Of two
    streams that claim one idempotency key at the same moment, one gets this, with the id of the other's intent.
    """

    code = "key_conflict"
    exit_status = 6
    remedy = "Use another key for other work; the same key with the same input returns the existing run."


class IntentMoved(RefoldError):
    """Another stream has brought the intent further, or has just made it. Nothing of this stream's batch was written,
    and its writer dropped what it had in memory.

    Each event of an intent carries its next revision. A commit writes an intent only where the stored revision is the
    one that the batch builds on, so that of two streams that act on the same knowledge one is told.
    """

    code = "intent_moved"
    exit_status = 6
    remedy = "Open the stream again, read the intent as it stands now, and decide from there."


class LedgerFull(RefoldError):
    """The disk or the file system's quota is full. Nothing of the batch was written, and its writer dropped it."""

    code = "ledger_full"
    exit_status = 1
    remedy = "Free some room, open the stream again and append what was dropped; what was acknowledged is safe."


class LedgerReadOnly(RefoldError):
    """The ledger's file, its lock file or their folder cannot be written, or not even be opened for reading, and that
    was needed. Nothing was written.
    """

    code = "ledger_read_only"
    exit_status = 2
    remedy = (
        "Give the process write access to the file, `<ledger>-lock` and their folder. To read, read access is enough "
        "where `<ledger>-wal` and `<ledger>-shm` are there."
    )


class LedgerDamaged(RefoldError):
    """The database file is damaged: SQLite itself cannot read part of it."""

    code = "ledger_damaged"
    exit_status = 7
    remedy = "Stop writing, keep the file, and restore the latest backup; `refold doctor` says more."


class NotALedger(RefoldError):
    """The file exists and is not a refold ledger. It was not touched."""

    code = "not_a_ledger"
    exit_status = 2
    remedy = "Name another file; a new ledger is made only where no file is."


class LedgerMissing(RefoldError):
    """There is no ledger at this place, and the command only reads."""

    code = "ledger_missing"
    exit_status = 2
    remedy = "Name the file with --ledger or REFOLD_LEDGER; `refold import` makes a new one."


class LedgerLinked(RefoldError):
    """The ledger's file has several names (hard links). SQLite would keep a log of its own for each, and what is
    written through one name would be lost through another. It was not touched.
    """

    code = "ledger_linked"
    exit_status = 2
    remedy = "Copy the file to a place of its own, or remove the other names; a symbolic link is no trouble."


class LedgerMoved(RefoldError):
    """The ledger's file was moved, removed or replaced while it was open. What could not be found again at its place
    was not acknowledged; this process writes nothing more there.
    """

    code = "ledger_moved"
    exit_status = 1
    remedy = "Put the file back with its `-wal`, and open the ledger again. Move a ledger when nobody has it open."


class NewerSchema(RefoldError):
    """The ledger was migrated by a newer refold. It was not touched."""

    code = "newer_schema"
    exit_status = 2
    remedy = "Use the refold that migrated it, or a newer one."


class SchemaOutdated(RefoldError):
    """The ledger's schema or its projections belong to other code than this. Events are safe; writing is refused
    until migrated.
    """

    code = "schema_outdated"
    exit_status = 6
    remedy = "Run `refold migrate`: it applies the missing migrations and rebuilds the projections beside the old ones."


class MigrationChanged(RefoldError):
    """A migration that was applied to this ledger is not the one in this code: its checksum differs."""

    code = "migration_changed"
    exit_status = 6
    remedy = "Use the released refold that made this ledger; migrations are never edited after release."


class NetworkFileSystem(RefoldError):
    """The ledger's folder is on a network file system, where locks and shared memory do not do what SQLite needs.

    It was neither opened nor made there: such ledgers work for a while and are then damaged.
    """

    code = "network_file_system"
    exit_status = 2
    remedy = "Put the ledger on a disk of the machine that uses it."


class LedgerBusy(RefoldError):
    """Another program, not refold, held the database's write lock for over 5 seconds. Nothing was written.

    refold's own writers take turns and never meet this.
    """

    code = "ledger_busy"
    exit_status = 1
    remedy = "Close the other program's transaction (a database shell, a backup tool), then try again."


class LedgerForked(RefoldError):
    """This process was forked from one that was reading the ledger at that moment, and cannot use it.

    SQLite's locks do not survive a fork. Connections are closed before each fork for that reason, but not those that
    somebody is reading with.
    """

    code = "ledger_forked"
    exit_status = 1
    remedy = "Start the process with spawn instead of fork, or fork while nothing of the ledger is being read."


class CommitUnknown(RefoldError):
    """A commit failed and the ledger could not be reached afterwards to see whether it took effect.

    Nothing of what depended on it may leave the process: it is neither known to be there nor known to be lost.
    """

    code = "commit_unknown"
    exit_status = 1
    remedy = "Open the ledger again and read the head: the batch is there whole, or not at all."


class ArtifactDamaged(RefoldError):
    """An artifact is missing, or its bytes do not match the size and digests on record."""

    code = "artifact_damaged"
    exit_status = 7
    remedy = "Restore the artifact's file from a backup; `refold verify` lists what is affected."


class Erased(RefoldError):
    """The content was erased on request. That it existed, and its digest, remain."""

    code = "erased"
    exit_status = 2
    remedy = "Nothing can bring it back; the annex says when and by whom it was erased."


class NotClosed(RefoldError):
    """Only the content of a closed run can be erased: an open one may still need it."""

    code = "not_closed"
    exit_status = 6
    remedy = "End the run first (`refold cancel RUN` for an imported session), then erase."


class CaptureModeUnavailable(RefoldError):
    """The capture mode asked for is not available in this version; nothing was recorded under a weaker one."""

    code = "capture_mode_unavailable"
    exit_status = 2
    remedy = "Use capture mode full, and erase the run's content when it has ended."


class BeyondHead(RefoldError):
    """A position was named that the stream has not reached. Nothing was read: waiting there would hide a mistake."""

    code = "beyond_head"
    exit_status = 2
    remedy = "Ask for a seq up to the head; `refold show RUN` names it."


class LedgerFailing(RefoldError):
    """The disk under the ledger, or SQLite itself, reported an error. What was acknowledged is safe; nothing was
    half-written.
    """

    code = "ledger_failing"
    exit_status = 1
    remedy = "Look at the system's log for disk errors; `refold doctor` checks the file."
