"""Random numbers: the stream of words, and draws from distributions."""

__all__: list[str] = []
