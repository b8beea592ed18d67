"""Built-in models: names, hashes, the cache, the fetch. Standard library only."""
