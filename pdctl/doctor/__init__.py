"""Whether the nodes can run a plan: they are asked once, then each check judges the answers by itself."""
