"""What must hold for SGLang: one family of rules per file. The engine brings them (`Program.rules`).

Each says where in SGLang's source, or in which report, it comes from, and for which releases it holds.
"""

from pdctl.rules.sglang import (
    agreement,
    all_to_all,
    allocation,
    attention,
    dispatch,
    environment,
    experts,
    memory_pool,
    network,
    paging,
    publishing,
    sharding,
    sharing,
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
    *attention.RULES,
    *dispatch.RULES,
    *environment.RULES,
    *experts.RULES,
    *memory_pool.RULES,
    *network.RULES,
    *paging.RULES,
    *publishing.RULES,
    *sharding.RULES,
    *sharing.RULES,
    *stages.RULES,
    *staging.RULES,
    *start.RULES,
    *timing.RULES,
    *transport.RULES,
)

__all__ = ["RULES"]
