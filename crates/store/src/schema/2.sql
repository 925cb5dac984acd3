-- Slots and pods of the kubelet, and what the node is set up as.

-- Counts bindings over the life of the file, so that of two that have one slot the newer is known.
ALTER TABLE bindings ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;
UPDATE bindings SET sequence = (
    SELECT count(*) FROM bindings AS other
    WHERE (other.created_at, other.sandbox) <= (bindings.created_at, bindings.sandbox));
CREATE UNIQUE INDEX bindings_sequence ON bindings (sequence);
INSERT INTO meta (key, value) SELECT 'sequence', CAST(count(*) AS TEXT) FROM bindings;

-- The pod, all of it or nothing: a job without Kubernetes has none.
ALTER TABLE bindings ADD COLUMN pod_uid TEXT;
ALTER TABLE bindings ADD COLUMN pod_namespace TEXT;
ALTER TABLE bindings ADD COLUMN pod_name TEXT
    CHECK ((pod_uid IS NULL) = (pod_name IS NULL) AND (pod_uid IS NULL) = (pod_namespace IS NULL));

-- The slot that a rail was bound to. A slot may be with two sandboxes for a while: the kubelet
-- gives it to a new pod before the old sandbox is gone.
ALTER TABLE binding_rails ADD COLUMN slot INTEGER CHECK (slot BETWEEN 0 AND 65535);
CREATE UNIQUE INDEX binding_rails_slot ON binding_rails (slot, sandbox) WHERE slot IS NOT NULL;

-- Slots that the kubelet has allocated and that no sandbox was bound to since. Outlives boots: the
-- kubelet does not allocate again what its checkpoint has.
CREATE TABLE waiting (
    slot   INTEGER PRIMARY KEY CHECK (slot BETWEEN 0 AND 65535),
    since  INTEGER NOT NULL,                -- seconds since 1970
    number INTEGER NOT NULL                 -- of the allocation; 0 if a new boot made it wait again
) STRICT;

-- Counts allocations over the life of the file, so that of two of one slot the newer is known.
INSERT INTO meta (key, value) VALUES ('allocations', '0');

-- Pods that had slots bound on this node. Outlives bindings and boots.
CREATE TABLE pods (
    uid       TEXT PRIMARY KEY NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    since     INTEGER NOT NULL              -- seconds since 1970
) STRICT;

-- What the node is set up as and what it was seen to have, for those who cannot find out.
CREATE TABLE setup (
    key   TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) STRICT;
