"""One module per framework: the same network as its users would write it."""
