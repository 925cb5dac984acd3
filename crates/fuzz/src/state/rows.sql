-- What a node with one pod and one job by hand has in its state file.
INSERT INTO meta (key, value) VALUES ('boot', '00000000-0000-4000-8000-000000000001')
    ON CONFLICT (key) DO UPDATE SET value = excluded.value;
INSERT INTO bindings (sandbox, state, netns, netns_dev, netns_ino, fingerprint, gpus, boot, plan,
                      created_at, sequence, pod_uid, pod_namespace, pod_name) VALUES
    ('job1', 'ready', '/run/netns/job1', 4, 4026532001, '{"netns":"/run/netns/job1"}',
     '0000:0f:00.0 0000:15:00.0', '00000000-0000-4000-8000-000000000001',
     '{"gpus":["0000:0f:00.0"],"rails":[],"exact":true,"plan":{}}', 1800000000, 1, NULL, NULL, NULL),
    ('c0ffee', 'pending', '/run/netns/cni-1', NULL, NULL, '{"pod":"8c1f"}', '',
     '00000000-0000-4000-8000-000000000001', '{}', 1800000001, 2, '8c1f-9', 'default', 'job-0');
INSERT INTO binding_rails (sandbox, rail, pci, port, netdev, share, slot) VALUES
    ('job1', 0, '0000:0c:00.0', 1, 'rdma0', 0, NULL),
    ('job1', 1, '0000:0c:00.1', 1, 'rdma1', 0, NULL),
    ('c0ffee', 4, '0000:16:00.0', 1, 'rdma4', 0, 3);
INSERT INTO leases (address, pool, family, sandbox, rail) VALUES
    ('10.239.255.1', 'rails', 4, 'job1', 0), ('fd00::1', 'rails', 6, 'job1', 0),
    ('10.239.255.3', 'rails', 4, 'c0ffee', 4);
INSERT INTO freed (sequence, address, pool, family) VALUES (1, '10.239.255.9', 'rails', 4);
INSERT INTO cursors (pool, family, address) VALUES ('rails', 4, '10.239.255.3'), ('rails', 6, 'fd00::1');
INSERT INTO waiting (slot, since, number) VALUES (5, 1800000002, 1);
INSERT INTO pods (uid, namespace, name, since) VALUES ('8c1f-9', 'default', 'job-0', 1800000001);
INSERT INTO setup (key, value) VALUES
    ('document', '{"pool":{"subnets":["10.239.255.0/24"]},"rails":{"shares":2}}'),
    ('root', '/'), ('node addresses', '10.0.0.7 fd00:1::7'),
    ('topology', '{"gpus":[],"rails":[],"excluded":[],"numa":[{"id":0,"socket":0}]}'),
    ('topology boot', '00000000-0000-4000-8000-000000000001'),
    ('slots', '16'), ('slots boot', '00000000-0000-4000-8000-000000000001');
