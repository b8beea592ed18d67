"""Head slices by way of staging buffers, for ranks that split attention differently.

Without it each token's heads are a write of their own, thousands of small ones. With it they travel as one:

    prefill rank                                     decode rank
    WANT  ──────────────────────────────────────────>  a slot of the ring pool, when one is free
          <──────────────────────────────────── GRANT  slot, and a ticket to write into it
    gather heads into a slot of its own buffer
    one write by the transfer backend  ═════════════>
    ARRIVED (room's ticket, pages, heads) ──────────>  scatter into the pages; the slot is free again
          <───────────────────────────────────── DONE

A slot of either side is free again when nothing writes into it, or reads from it, any more: the backend's
`on_done` and `on_quiet` say when. No step but GRANT waits for another block, and a block that has its grant
needs nothing more on the decode side: so there is no deadlock.
"""
