# cython: language_level=3
"""What is known of the histories of nodes, for other extensions."""

from kernelrt.native.node cimport Node


# Whether a gradient that flows into a node reaches a leaf; what severs it, if only that does.
cdef object lineage_of(Node root)
