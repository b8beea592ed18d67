"""Backends over libraries that write into the receiver's memory behind its back (RDMA and its like).

Such a library knows addresses, not tickets: any sender that was told an address can write there, at any time.
What the protocol promises on top comes from a *gate*, a socket beside the library's own connection. Before
each batch the sender asks for it (ticket and ranges); the receiver checks, counts the batch as under way, and
grants; afterwards the sender says that it is over. So the receiver knows whether a byte may still land:

- batch granted, sender alive: memory in quarantine until the sender says `OVER`.
- `OVER, broken`, or the gate's connection lost (the sender died): what was in the fabric or in this host's
  socket buffers may still land; quiet after the fabric's `drain_s`.
- the sender's machine doesn't answer (a partition): keepalive ends the gate after 30 s. The sender may live
  and go on when the network is back, so the memory stays in quarantine for 120 s more: by then its library
  and its kernel have given up. A sender that merely stands still keeps the memory for as long as it does.

The question travels while the batch before it is written, so it costs no time when there is more than one.
It guards against a sender in error, not against a malicious one: who is given addresses, has to be trusted.

    fabric.py       what a library has to be able to do: one file per library implements it
    gate.py         the frames of the gate
    receiver.py     the gate on the receiving side
    asking.py       the gate on the sending side, without blocking
    session.py      one receiver's sends, as a state machine
    lanes.py        the threads that drive sessions
    backend.py      all of it together, as a `TransferBackend`
"""
