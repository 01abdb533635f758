"""Layers, optimizers and state of neural networks, by PyTorch's names."""

from kernelrt.nn import init, optim
from kernelrt.nn.files import load, save
from kernelrt.nn.layers import (
    GELU,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from kernelrt.nn.module import Module, ModuleList, Sequential
from kernelrt.nn.spatial import (
    AvgPool2d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    MaxPool2d,
)
from kernelrt.nn.state import IncompatibleKeys, load_state_dict, state_dict
from kernelrt.nn.tree import named_parameters, parameters

__all__ = [
    "GELU",
    "AvgPool2d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "IncompatibleKeys",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "init",
    "load",
    "load_state_dict",
    "named_parameters",
    "optim",
    "parameters",
    "save",
    "state_dict",
]
