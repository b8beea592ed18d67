"""What must hold for SGLang: one family of rules per file. The engine brings them (`Program.rules`).

Each says where in SGLang's source, or in which report, it comes from, and for which releases it holds.
"""

from pdctl.rules.sglang import (
    agreement,
    attention,
    dispatch,
    environment,
    experts,
    network,
    paging,
    sharing,
    stages,
    staging,
    start,
    transport,
)

RULES = (
    *agreement.RULES,
    *attention.RULES,
    *dispatch.RULES,
    *environment.RULES,
    *experts.RULES,
    *network.RULES,
    *paging.RULES,
    *sharing.RULES,
    *stages.RULES,
    *staging.RULES,
    *start.RULES,
    *transport.RULES,
)

__all__ = ["RULES"]
