"""The paged KV pool: layout arithmetic, the pool itself, its page allocator."""
