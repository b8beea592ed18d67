"""What runs on the nodes: the shim, the reference engine, its bootstrap server and mini load balancer.

`runtime` and `pdctl` never import each other. They meet in spec.json, status.json, output.log, argv,
environment and HTTP.
"""
