"""Loop nests of kernels: the loop IR, its verifier and printer, tiling, passes and cost model."""

__all__: list[str] = []
