"""``python -m kernelrt``: the command line; without a command it trains on the digits."""

from __future__ import annotations

import sys

from kernelrt.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
