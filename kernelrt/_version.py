"""The version of kernelrt, read by the package, its metadata and the kernel cache."""

__version__ = "0.1.0"
