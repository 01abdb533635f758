"""Run the command line with ``python -m kernelrt``; the default command trains on the digits."""

from __future__ import annotations

import sys

from kernelrt.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
