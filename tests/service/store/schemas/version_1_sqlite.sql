-- The tables of schema version 1 on SQLite.
CREATE TABLE keys (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    role TEXT NOT NULL,
    hash TEXT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT,
    UNIQUE (hash)
);
CREATE TABLE loops (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    settings TEXT NOT NULL,
    created BIGINT NOT NULL,
    UNIQUE (name)
);
CREATE TABLE waiting (
    loop INTEGER NOT NULL,
    decision INTEGER NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (loop, decision)
)
 WITHOUT ROWID;
CREATE TABLE windvane_schema (
    version INTEGER NOT NULL
);
CREATE TABLE counters (
    loop INTEGER NOT NULL,
    ranked BIGINT NOT NULL,
    activated BIGINT NOT NULL,
    unactivated BIGINT NOT NULL,
    "default" BIGINT NOT NULL,
    learned BIGINT NOT NULL,
    summed BIGINT NOT NULL,
    extra BIGINT NOT NULL,
    held BIGINT NOT NULL,
    late BIGINT NOT NULL,
    orphan BIGINT NOT NULL,
    duplicate BIGINT NOT NULL,
    unlearned BIGINT NOT NULL,
    PRIMARY KEY (loop),
    FOREIGN KEY(loop) REFERENCES loops (id)
);
CREATE TABLE decisions (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    loop INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    round BIGINT NOT NULL,
    at BIGINT NOT NULL,
    mode TEXT NOT NULL,
    "deferred" BOOLEAN NOT NULL,
    degraded BOOLEAN NOT NULL,
    activated_at BIGINT,
    chosen INTEGER NOT NULL,
    features BLOB,
    probabilities BLOB NOT NULL,
    actions TEXT NOT NULL,
    answer BLOB NOT NULL,
    request TEXT NOT NULL,
    UNIQUE (loop, event_id),
    FOREIGN KEY(loop) REFERENCES loops (id)
);
CREATE INDEX decisions_at ON decisions (loop, at);
CREATE INDEX decisions_of_loop ON decisions (loop, id);
CREATE TABLE rewards (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    loop INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    request_id TEXT,
    value FLOAT NOT NULL,
    at BIGINT NOT NULL,
    status TEXT NOT NULL,
    UNIQUE (loop, event_id, request_id),
    FOREIGN KEY(loop) REFERENCES loops (id)
);
CREATE INDEX rewards_orphan ON rewards (loop, at) WHERE status = 'orphan';
CREATE TABLE settings_log (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    loop INTEGER NOT NULL,
    at BIGINT NOT NULL,
    settings TEXT NOT NULL,
    "by" TEXT NOT NULL,
    lesson INTEGER NOT NULL,
    FOREIGN KEY(loop) REFERENCES loops (id)
);
CREATE INDEX settings_log_of_loop ON settings_log (loop, id);
CREATE TABLE snapshots (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    loop INTEGER NOT NULL,
    lesson INTEGER NOT NULL,
    blob BLOB NOT NULL,
    at BIGINT NOT NULL,
    FOREIGN KEY(loop) REFERENCES loops (id)
);
CREATE INDEX snapshots_of_loop ON snapshots (loop, id);
CREATE TABLE lessons (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    loop INTEGER NOT NULL,
    decision INTEGER NOT NULL,
    kind TEXT NOT NULL,
    value FLOAT NOT NULL,
    at BIGINT NOT NULL,
    FOREIGN KEY(loop) REFERENCES loops (id),
    FOREIGN KEY(decision) REFERENCES decisions (id)
);
CREATE INDEX lessons_of_decision ON lessons (decision);
CREATE INDEX lessons_of_loop ON lessons (loop, id);
