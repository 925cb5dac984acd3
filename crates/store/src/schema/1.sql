-- Who holds which shares of which rails, and which addresses; what was freed, in order. Nothing
-- cascades: a row goes only when it is named.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE bindings (
    sandbox     TEXT PRIMARY KEY NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('pending', 'ready')),
    netns       TEXT NOT NULL,
    netns_dev   INTEGER,
    netns_ino   INTEGER,
    fingerprint TEXT NOT NULL,
    gpus        TEXT NOT NULL,              -- PCI addresses, one space between two
    boot        TEXT NOT NULL,
    plan        TEXT NOT NULL,
    created_at  INTEGER NOT NULL,           -- seconds since 1970
    CHECK ((netns_dev IS NULL) = (netns_ino IS NULL))
) STRICT;

CREATE TABLE binding_rails (
    sandbox TEXT NOT NULL REFERENCES bindings (sandbox) ON DELETE RESTRICT,
    rail    INTEGER NOT NULL CHECK (rail BETWEEN 0 AND 65535),
    pci     TEXT NOT NULL,
    port    INTEGER NOT NULL CHECK (port BETWEEN 0 AND 4294967295),
    netdev  TEXT NOT NULL,
    share   INTEGER NOT NULL CHECK (share BETWEEN 0 AND 65535),
    PRIMARY KEY (sandbox, rail),
    UNIQUE (pci, port, share)               -- a share of a rail has one holder
) STRICT;

CREATE TABLE leases (
    address TEXT PRIMARY KEY NOT NULL,      -- an address has one holder
    pool    TEXT NOT NULL,
    family  INTEGER NOT NULL CHECK (family IN (4, 6)),
    sandbox TEXT NOT NULL,
    rail    INTEGER NOT NULL,
    UNIQUE (sandbox, rail, family),
    FOREIGN KEY (sandbox, rail) REFERENCES binding_rails (sandbox, rail) ON DELETE RESTRICT
) STRICT;

-- Addresses that were leased and are free. Outlives bindings and boots; a row goes when its address
-- is leased again, or when it is too old to be remembered.
CREATE TABLE freed (
    sequence INTEGER PRIMARY KEY,           -- order of release: above all others when it is made
    address  TEXT UNIQUE NOT NULL,
    pool     TEXT NOT NULL,
    family   INTEGER NOT NULL CHECK (family IN (4, 6))
) STRICT;

-- Where each pool's first round stands: the last address issued that counted as never issued.
-- Outlives bindings and boots.
CREATE TABLE cursors (
    pool    TEXT NOT NULL,
    family  INTEGER NOT NULL CHECK (family IN (4, 6)),
    address TEXT NOT NULL,
    PRIMARY KEY (pool, family)
) STRICT;
