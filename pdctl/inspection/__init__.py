"""Read the flags of an installed SGLang, or of a wheel, from its source: nothing of it is imported or run."""
