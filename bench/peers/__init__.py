"""One module a framework: how a user of it would write the same network."""
