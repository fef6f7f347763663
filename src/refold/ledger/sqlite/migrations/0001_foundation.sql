-- The authority: everything here is written by commits and never derived. The tables that are folds of events
-- are made from their row structs (refold.projections.rows) and rebuilt whenever the folds change.

CREATE TABLE ledger (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    ledger_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    projections TEXT NOT NULL
);

CREATE TABLE secrets (
    tenant_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    name TEXT NOT NULL,
    secret BLOB NOT NULL,
    row_digest BLOB NOT NULL,
    PRIMARY KEY (tenant_id, workspace_id, name)
) WITHOUT ROWID;

CREATE TABLE stream_heads (
    stream_no INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    owner INTEGER,
    closed INTEGER NOT NULL DEFAULT 0,
    erased INTEGER NOT NULL DEFAULT 0,
    row_digest BLOB NOT NULL,
    UNIQUE (tenant_id, workspace_id, stream)
);

CREATE INDEX stream_heads_erasing ON stream_heads (erased) WHERE erased = 1;

-- id = stream_no * 2^32 + seq: a stream is one contiguous, ordered range of one b-tree.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    format INTEGER NOT NULL,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    occurred_at INTEGER,
    actor TEXT NOT NULL,
    site TEXT NOT NULL,
    cause INTEGER,
    facts BLOB NOT NULL,
    content_digest BLOB,
    content BLOB,
    view_digest BLOB,
    view BLOB,
    hash BLOB NOT NULL,
    stream_no INTEGER GENERATED ALWAYS AS (id >> 32) VIRTUAL REFERENCES stream_heads (stream_no),
    seq INTEGER GENERATED ALWAYS AS (id & 4294967295) VIRTUAL
);

-- id = stream_no * 2^32 + number. Parts of growing requests (found by their lookup) and artifacts (bytes NULL: in a file).
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    lookup BLOB,
    digest BLOB NOT NULL,
    bytes BLOB,
    view_digest BLOB,
    view BLOB,
    stream_no INTEGER GENERATED ALWAYS AS (id >> 32) VIRTUAL REFERENCES stream_heads (stream_no),
    number INTEGER GENERATED ALWAYS AS (id & 4294967295) VIRTUAL
);

CREATE UNIQUE INDEX blobs_lookup ON blobs (tenant_id, workspace_id, stream_no, lookup) WHERE lookup IS NOT NULL;

CREATE TABLE incarnations (
    number INTEGER PRIMARY KEY,
    boot_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL
);

CREATE TABLE inbox (
    tenant_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload BLOB NOT NULL,
    actor TEXT NOT NULL,
    posted_at INTEGER NOT NULL,
    delivered_seq INTEGER,
    PRIMARY KEY (tenant_id, workspace_id, stream, key),
    FOREIGN KEY (tenant_id, workspace_id, stream) REFERENCES stream_heads (tenant_id, workspace_id, stream)
);

CREATE TABLE snapshots (
    tenant_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    fingerprint TEXT NOT NULL,
    state_digest BLOB NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (tenant_id, workspace_id, stream, seq),
    FOREIGN KEY (tenant_id, workspace_id, stream) REFERENCES stream_heads (tenant_id, workspace_id, stream)
);

CREATE TABLE cursors (
    tenant_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    name TEXT NOT NULL,
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, workspace_id, name, stream),
    FOREIGN KEY (tenant_id, workspace_id, stream) REFERENCES stream_heads (tenant_id, workspace_id, stream)
) WITHOUT ROWID;
