"""Data loading: batches, data sets, loaders, splits, scaling, metrics, and a small data set.

See docs/data.md.
"""

from kernelrt.data.batching import Batches, batches
from kernelrt.data.collate import default_collate
from kernelrt.data.loader import DataLoader
from kernelrt.data.metrics import (
    accuracy,
    confusion_matrix,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
)
from kernelrt.data.pixels import DigitsSplit, digits, digits_split
from kernelrt.data.samplers import BatchSampler, RandomSampler, Sampler, SequentialSampler
from kernelrt.data.scaling import Standardizer
from kernelrt.data.sets import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from kernelrt.data.splitting import train_test_split

__all__ = [
    "BatchSampler",
    "Batches",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DigitsSplit",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Standardizer",
    "Subset",
    "TensorDataset",
    "accuracy",
    "batches",
    "confusion_matrix",
    "default_collate",
    "digits",
    "digits_split",
    "mean_absolute_error",
    "mean_squared_error",
    "r2_score",
    "random_split",
    "train_test_split",
]
