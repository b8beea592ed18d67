"""What must hold for SGLang: one family of rules per file. The engine brings them (`Program.rules`).

Each says where in SGLang's source, or in which report, it comes from, and for which releases it holds.
"""

from pdctl.rules.sglang import (
    agreement,
    all_to_all,
    allocation,
    ascend,
    attention,
    caches,
    devices,
    dispatch,
    environment,
    experts,
    hosts,
    lengths,
    memory_pool,
    network,
    paging,
    publishing,
    rdma,
    sharding,
    sharing,
    speculation,
    stages,
    staging,
    start,
    timing,
    transport,
)

RULES = (
    *agreement.RULES,
    *all_to_all.RULES,
    *allocation.RULES,
    *ascend.RULES,
    *attention.RULES,
    *caches.RULES,
    *devices.RULES,
    *dispatch.RULES,
    *environment.RULES,
    *experts.RULES,
    *hosts.RULES,
    *lengths.RULES,
    *memory_pool.RULES,
    *network.RULES,
    *paging.RULES,
    *publishing.RULES,
    *rdma.RULES,
    *sharding.RULES,
    *sharing.RULES,
    *speculation.RULES,
    *stages.RULES,
    *staging.RULES,
    *start.RULES,
    *timing.RULES,
    *transport.RULES,
)

__all__ = ["RULES"]
