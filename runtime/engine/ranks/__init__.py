"""One engine in several processes: each rank holds a part of the model, the leader says what to compute."""
