"""Layers, optimizers and state of neural networks, by PyTorch's names."""

from typing import TYPE_CHECKING

from kernelrt._lacking import NN, of_module
from kernelrt.nn import functional, init, optim, utils
from kernelrt.nn.containers import (
    Buffer,
    ModuleDict,
    ModuleList,
    Parameter,
    ParameterDict,
    ParameterList,
    Sequential,
)
from kernelrt.nn.files import load, save
from kernelrt.nn.layers import (
    GELU,
    BCELoss,
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
    Unflatten,
)
from kernelrt.nn.module import Module
from kernelrt.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from kernelrt.nn.spatial import (
    AvgPool2d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    MaxPool2d,
    Upsample,
)
from kernelrt.nn.state import IncompatibleKeys, load_state_dict, state_dict
from kernelrt.nn.tree import named_parameters, parameters
from kernelrt.tensor import Tensor as _Tensor

__all__ = [
    "GELU",
    "GRU",
    "LSTM",
    "RNN",
    "AvgPool2d",
    "BCELoss",
    "Buffer",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dropout",
    "Embedding",
    "Flatten",
    "GRUCell",
    "Identity",
    "IncompatibleKeys",
    "LSTMCell",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "RNNCell",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "Unflatten",
    "Upsample",
    "functional",
    "init",
    "load",
    "load_state_dict",
    "named_parameters",
    "optim",
    "parameters",
    "save",
    "state_dict",
    "utils",
]

if not TYPE_CHECKING:  # else any name would pass for one that is there
    __getattr__ = of_module("kernelrt.nn", NN, __all__, _Tensor)
