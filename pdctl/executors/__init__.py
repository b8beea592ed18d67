"""How processes are started, seen and stopped on the nodes of a cluster."""
