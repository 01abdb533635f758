"""The method families that make up Tensor."""

__all__: list[str] = []
