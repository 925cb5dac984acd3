//! Route and RDMA netlink verbs, and entering a network namespace.
