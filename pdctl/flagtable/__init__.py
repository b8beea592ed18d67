"""The flags of released engines and routers: one table per version, made by `pdctl engine inspect`."""
