"""Metrics of predictions, as Python numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelrt.data.rows import as_array
from kernelrt.errors import DomainError, DTypeError, ShapeError

__all__ = ["accuracy", "confusion_matrix", "mean_absolute_error", "mean_squared_error", "r2_score"]

Array = np.ndarray[Any, Any]


def accuracy(predicted: Any, target: Any) -> float:
    """Return the share of correctly predicted labels.

    Parameters
    ----------
    predicted : array or Tensor
        Labels in the shape of `target`, or scores with an additional last axis. If this axis has
        one score for each class, the class with the greatest score is predicted. If it has size 1,
        the score is a logit, as for ``binary_cross_entropy_with_logits``: a score above 0 predicts
        label 1, any other label 0. If you have probabilities, pass ``probabilities > 0.5``.
    target : array or Tensor
        Labels: numbers or strings.

    Returns
    -------
    float
        Share from 0 to 1.

    Raises
    ------
    ShapeError
        Shapes disagree. Or there is one score for each sample, and all scores lie from 0 to 1, so
        they may be probabilities. Or there is one score for each sample, and `target` has labels
        other than 0 and 1.
    DTypeError
        `predicted` has the shape of `target`, but it holds fractions, while `target` holds whole
        numbers.

    Examples
    --------
    >>> from kernelrt.data import accuracy
    >>> accuracy([[0.1, 0.9], [0.8, 0.2]], [1, 1])
    0.5
    """
    found, wanted = _labels(predicted, target)
    if not found.size:
        raise ShapeError(f"predicted: expected at least one label, not shape {found.shape}")
    return float((found == wanted).mean())


def _labels(predicted: Any, target: Any) -> tuple[Array, Array]:
    found, wanted = as_array(predicted, "predicted"), as_array(target, "target")
    if found.ndim == wanted.ndim + 1 and found.shape[-1:] != (0,):
        if found.shape[-1] == 1:
            return _of_logits(found[..., 0], wanted), wanted
        found = found.argmax(-1)
    if found.shape != wanted.shape:
        raise ShapeError(
            f"predicted: expected the shape {wanted.shape} of target, not {found.shape}"
        )
    if found.dtype.kind == "f" and wanted.dtype.kind in "iub" and (found != np.floor(found)).any():
        raise DTypeError(
            f"predicted: expected integer labels, as target holds {wanted.dtype}, but predicted "
            f"holds {found[found != np.floor(found)][0]}; turn scores into labels first, as in "
            "predicted > 0 for logits and predicted > 0.5 for probabilities"
        )
    return found, wanted


def _of_logits(scores: Array, wanted: Array) -> Array:
    """Return labels 0 and 1 from one logit for each sample."""
    if not np.isin(wanted, (0, 1)).all():
        raise ShapeError(
            f"predicted: shape {(*scores.shape, 1)} has one score for each sample, but target has "
            f"labels other than 0 and 1, such as {wanted[~np.isin(wanted, (0, 1))][0]}; pass "
            "labels, or a score for each class"
        )
    if scores.size and ((scores >= 0) & (scores <= 1)).all():
        raise ShapeError(
            f"predicted: shape {(*scores.shape, 1)} has one score for each sample, and all scores "
            "lie from 0 to 1, so they may be logits or probabilities; pass labels, as "
            "predicted[..., 0] > 0 for logits and predicted[..., 0] > 0.5 for probabilities"
        )
    return (scores > 0).astype(np.int64)


def confusion_matrix(predicted: Any, target: Any, classes: int | None = None) -> Array:
    """Return how often each class (row) was predicted as each class (column).

    Parameters
    ----------
    predicted : array or Tensor
        Labels in the shape of `target`, or scores with an additional last axis; see
        :func:`accuracy`.
    target : array or Tensor
        True labels: integers of at least 0.
    classes : int, optional
        Number of classes; by default one more than the greatest label.

    Returns
    -------
    ndarray of int64, shape (classes, classes)
        Element ``[i, j]`` is the number of samples of class i that were predicted as class j.

    Raises
    ------
    DTypeError
        Labels are not integers.
    DomainError
        A label is negative.
    ShapeError
        Shapes disagree, or a label is not below `classes`.

    Examples
    --------
    >>> from kernelrt.data import confusion_matrix
    >>> confusion_matrix([0, 1, 1], [0, 0, 1]).tolist()
    [[1, 1], [0, 1]]
    """
    found, wanted = _labels(predicted, target)
    for name, labels in (("predicted", found), ("target", wanted)):
        if labels.dtype.kind not in "iub":
            raise DTypeError(f"{name}: expected integers, not {labels.dtype}")
        if labels.size and labels.min() < 0:
            raise DomainError(f"{name}: expected labels of at least 0, not {labels.min()}")
    most = max((int(v.max()) + 1 for v in (found, wanted) if v.size), default=0)
    size = most if classes is None else classes
    if most > size:
        raise ShapeError(
            f"classes: expected more than {most - 1}, which is the greatest label, not {size}"
        )
    places = wanted.astype(np.int64).reshape(-1) * size + found.reshape(-1)
    return np.bincount(places, minlength=size * size).reshape(size, size).astype(np.int64)


def _pair(predicted: Any, target: Any) -> tuple[Array, Array]:
    found, wanted = as_array(predicted, "predicted"), as_array(target, "target")
    if found.shape != wanted.shape:
        raise ShapeError(
            f"predicted: expected the shape {wanted.shape} of target, not {found.shape}"
        )
    if not found.size:
        raise ShapeError(f"predicted: expected at least one number, not shape {found.shape}")
    return found.astype(np.float64), wanted.astype(np.float64)


def mean_squared_error(predicted: Any, target: Any) -> float:
    """Return the mean of squared differences.

    Parameters
    ----------
    predicted, target : array or Tensor
        Numbers of one shape.

    Returns
    -------
    float
        Mean over all elements, computed in float64.

    Raises
    ------
    ShapeError
        Shapes differ, or there are no numbers.

    Examples
    --------
    >>> from kernelrt.data import mean_squared_error
    >>> mean_squared_error([1.0, 4.0], [2.0, 2.0])
    2.5
    """
    found, wanted = _pair(predicted, target)
    return float(((found - wanted) ** 2).mean())


def mean_absolute_error(predicted: Any, target: Any) -> float:
    """Return the mean of absolute differences.

    Parameters
    ----------
    predicted, target : array or Tensor
        Numbers of one shape.

    Returns
    -------
    float
        Mean over all elements, computed in float64.

    Raises
    ------
    ShapeError
        Shapes differ, or there are no numbers.

    Examples
    --------
    >>> from kernelrt.data import mean_absolute_error
    >>> mean_absolute_error([1.0, 4.0], [2.0, 2.0])
    1.5
    """
    found, wanted = _pair(predicted, target)
    return float(np.abs(found - wanted).mean())


def r2_score(predicted: Any, target: Any) -> float:
    """Return the coefficient of determination, R2: 1 for perfect predictions, possibly below 0.

    Parameters
    ----------
    predicted, target : array or Tensor
        Values of one shape, (n,) or (n, features); the result is the mean over the features. A
        constant feature scores 1 if it is predicted exactly, otherwise 0.

    Returns
    -------
    float
        ``1 - sum((target - predicted)**2) / sum((target - mean(target))**2)``, computed in float64.

    Raises
    ------
    ShapeError
        Shapes differ, or there are no numbers.

    Examples
    --------
    >>> from kernelrt.data import r2_score
    >>> r2_score([1.0, 2.0, 4.0], [1.0, 2.0, 3.0])
    0.5
    """
    found, wanted = _pair(predicted, target)
    found, wanted = (v.reshape(len(v), -1) if v.ndim else v.reshape(1, 1) for v in (found, wanted))
    left = ((found - wanted) ** 2).sum(0)
    spread = ((wanted - wanted.mean(0)) ** 2).sum(0)
    flat = spread == 0
    score = 1 - left / np.where(flat, 1, spread)
    return float(np.where(flat, np.where(left == 0, 1.0, 0.0), score).mean())
