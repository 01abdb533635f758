"""One module for each promise; see tests.soak for what a generator is."""
