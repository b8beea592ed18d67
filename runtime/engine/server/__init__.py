"""The HTTP face of the reference engine: SGLang's `/generate`, OpenAI's routes, health, facts and metrics."""
