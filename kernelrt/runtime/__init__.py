"""Execution plans: compiled kernels, buffers and their order, executed by the C core."""

from kernelrt.runtime.accessors import BuildTimes
from kernelrt.runtime.builder import ExecutionPlanBuilder
from kernelrt.runtime.kernel import CachedKernel
from kernelrt.runtime.kernel_cache import KernelCache, kernels
from kernelrt.runtime.plan import ExecutionPlan
from kernelrt.runtime.plan_ops import (
    PortBinding,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
    PreparedRegion,
    RuntimeVar,
)
from kernelrt.runtime.plan_report import MemoryReport
from kernelrt.runtime.prepare import prepare
from kernelrt.runtime.profiler import ClaimProfile, KernelProfile
from kernelrt.runtime.repeat import OpTiming, PlanProfile

__all__ = [
    "BuildTimes",
    "CachedKernel",
    "ClaimProfile",
    "ExecutionPlan",
    "ExecutionPlanBuilder",
    "KernelCache",
    "KernelProfile",
    "MemoryReport",
    "OpTiming",
    "PlanProfile",
    "PortBinding",
    "PreparedBufferView",
    "PreparedCopy",
    "PreparedCustomFunction",
    "PreparedKernel",
    "PreparedOp",
    "PreparedRegion",
    "RuntimeVar",
    "kernels",
    "prepare",
]
