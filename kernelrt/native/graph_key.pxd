# cython: language_level=3
"""Histories of nodes, for other extension modules."""

from kernelrt.native.node cimport Node


# Return whether a gradient of a node reaches a leaf. If it reaches none, but a Severed tag, return
# the tag.
cdef object lineage_of(Node root)
