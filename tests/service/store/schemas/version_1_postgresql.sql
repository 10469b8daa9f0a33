-- The tables of schema version 1 on PostgreSQL.
CREATE TABLE keys (
    id BIGSERIAL NOT NULL,
    role TEXT NOT NULL,
    hash TEXT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT,
    PRIMARY KEY (id),
    UNIQUE (hash)
);
CREATE TABLE loops (
    id BIGSERIAL NOT NULL,
    name TEXT NOT NULL,
    settings TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
);
CREATE TABLE waiting (
    loop BIGINT NOT NULL,
    decision BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (loop, decision)
);
CREATE TABLE windvane_schema (
    version INTEGER NOT NULL
);
CREATE TABLE counters (
    loop BIGINT NOT NULL,
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
    id BIGSERIAL NOT NULL,
    loop BIGINT NOT NULL,
    event_id TEXT NOT NULL,
    round BIGINT NOT NULL,
    at BIGINT NOT NULL,
    mode TEXT NOT NULL,
    deferred BOOLEAN NOT NULL,
    degraded BOOLEAN NOT NULL,
    activated_at BIGINT,
    chosen INTEGER NOT NULL,
    features BYTEA,
    probabilities BYTEA NOT NULL,
    actions TEXT NOT NULL,
    answer BYTEA NOT NULL,
    request TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (loop, event_id),
    FOREIGN KEY(loop) REFERENCES loops (id)
);
CREATE INDEX decisions_at ON decisions (loop, at);
CREATE INDEX decisions_of_loop ON decisions (loop, id);
CREATE TABLE rewards (
    id BIGSERIAL NOT NULL,
    loop BIGINT NOT NULL,
    event_id TEXT NOT NULL,
    request_id TEXT,
    value FLOAT(53) NOT NULL,
    at BIGINT NOT NULL,
    status TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (loop, event_id, request_id),
    FOREIGN KEY(loop) REFERENCES loops (id)
);
CREATE INDEX rewards_orphan ON rewards (loop, at) WHERE status = 'orphan';
CREATE TABLE settings_log (
    id BIGSERIAL NOT NULL,
    loop BIGINT NOT NULL,
    at BIGINT NOT NULL,
    settings TEXT NOT NULL,
    by TEXT NOT NULL,
    lesson BIGINT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(loop) REFERENCES loops (id)
);
CREATE INDEX settings_log_of_loop ON settings_log (loop, id);
CREATE TABLE snapshots (
    id BIGSERIAL NOT NULL,
    loop BIGINT NOT NULL,
    lesson BIGINT NOT NULL,
    blob BYTEA NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(loop) REFERENCES loops (id)
);
CREATE INDEX snapshots_of_loop ON snapshots (loop, id);
CREATE TABLE lessons (
    id BIGSERIAL NOT NULL,
    loop BIGINT NOT NULL,
    decision BIGINT NOT NULL,
    kind TEXT NOT NULL,
    value FLOAT(53) NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(loop) REFERENCES loops (id),
    FOREIGN KEY(decision) REFERENCES decisions (id)
);
CREATE INDEX lessons_of_decision ON lessons (decision);
CREATE INDEX lessons_of_loop ON lessons (loop, id);
