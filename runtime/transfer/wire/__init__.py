"""What the transfer backends' own sockets share: frames, connections with their threads, grants."""
