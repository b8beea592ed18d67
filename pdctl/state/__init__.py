"""What is known about deployments: what runs on the nodes, and the operator's own record of it."""
