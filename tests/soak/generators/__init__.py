"""One generator for each promise; tests.soak describes generators."""
