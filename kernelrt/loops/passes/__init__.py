"""Passes that rewrite loop nests."""

__all__: list[str] = []
