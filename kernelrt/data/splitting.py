"""Splits data into a training and a test part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernelrt.data.rows import as_array, count_of, fresh_seed, generator_of, seed_of, take
from kernelrt.errors import DomainError, DTypeError, ShapeError

__all__ = ["train_test_split"]


def train_test_split(
    *data: Any, test_size: float | None = None, train_size: float | None = None,
    shuffle: bool = True, stratify: Any = None, seed: int | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Split rows into training rows and test rows.

    Parameters
    ----------
    *data : array, Tensor, list, or dict or tuple of them
        Data with equal numbers of rows along the first axis.
    test_size, train_size : float or int, optional
        Share between 0 and 1, or number of rows. If you leave out one of the two, its part gets the
        remaining rows. If you leave out both, a quarter of the rows is for the test.
    shuffle : bool
        Whether to choose rows at random; otherwise the last rows are for the test.
    stratify : array, optional
        Class of each row. The proportions of the classes become as equal as possible in both parts.
    seed : int, optional
        Seed of the order; by default it follows :func:`kernelrt.manual_seed`.

    Returns
    -------
    tuple
        Two items for each argument, in order: its training rows and its test rows.

    Raises
    ------
    ShapeError
        Numbers of rows differ. Or a part would have no rows, or more rows than there are. Or a
        class has less than two rows.

    Examples
    --------
    >>> from kernelrt.data import train_test_split
    >>> x = np.arange(8)
    >>> train, test, *_ = train_test_split(x, x % 2, stratify=x % 2, seed=0)
    >>> sorted((test % 2).tolist())
    [0, 1]
    """
    if not data:
        raise ShapeError("data: expected at least one array, not none")
    rows = count_of(data, "data")
    train, test = _sizes(rows, train_size, test_size)
    rng = generator_of(_seed(seed), 0)
    if stratify is not None:
        if not shuffle:
            raise ShapeError(
                "stratify: expected shuffle=True, not False, because a stratified split chooses "
                "rows at random"
            )
        chosen = _stratified(as_array(stratify, "stratify"), rows, train, test, rng)
    else:
        order = rng.permutation(rows) if shuffle else np.arange(rows)
        chosen = (order[:train], order[train : train + test]) if not shuffle else (
            order[test : test + train], order[:test])  # fmt: skip
    return tuple(take(d, part) for d in data for part in chosen)


def _seed(seed: object) -> int:
    found = seed_of(seed)
    return fresh_seed() if found is None else found


def _sizes(rows: int, train: float | None, test: float | None) -> tuple[int, int]:
    """Return the numbers of training and test rows."""
    if train is None and test is None:
        test = 0.25
    tests = None if test is None else _size(test, rows, "test_size", math.ceil)
    trains = None if train is None else _size(train, rows, "train_size", math.floor)
    if tests is None:
        assert trains is not None
        tests = rows - trains
    if trains is None:
        trains = rows - tests
    if trains < 1 or tests < 1 or trains + tests > rows:
        raise ShapeError(
            f"test_size, train_size: {rows} rows cannot be split into {trains} training rows and "
            f"{tests} test rows; each part needs at least one row, and the sum must not exceed "
            f"{rows}"
        )
    return trains, tests


def _size(value: object, rows: int, name: str, rounded: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise DTypeError(f"{name}: expected a number, not {type(value).__name__}")
    if isinstance(value, float | np.floating):
        if not 0 < value < 1:
            raise DomainError(f"{name}: expected a fraction between 0 and 1, not {value}")
        # 0.3 of 10 is 3, although the floating product is slightly more.
        return int(rounded(round(float(value) * rows, 9)))
    return int(value)


def _stratified(
    classes: np.ndarray[Any, Any], rows: int, train: int, test: int, rng: np.random.Generator
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    if classes.shape != (rows,):
        raise ShapeError(
            f"stratify: expected shape ({rows},), one class for each row, not {classes.shape}"
        )
    names, which, counts = np.unique(classes, return_inverse=True, return_counts=True)
    if counts.min() < 2:
        raise ShapeError(
            f"stratify: class {names[counts.argmin()]} has only one row, but the training part and "
            "the test part each need a row of every class; leave out stratify, or that class"
        )
    if min(train, test) < len(names):
        raise ShapeError(
            f"stratify: a part with {min(train, test)} rows cannot contain all {len(names)} "
            "classes; change test_size or train_size, or leave out stratify"
        )
    tests = _shared(counts, test)
    trains = np.minimum(_shared(counts, train), counts - tests)
    # Rows lost to rounding go to the classes with the most unused rows.
    for _ in range(train - int(trains.sum())):
        trains[(counts - tests - trains).argmax()] += 1
    parts: tuple[list[Any], list[Any]] = ([], [])
    for k in range(len(names)):
        mine = rng.permutation(np.flatnonzero(which == k))
        parts[1].append(mine[: tests[k]])
        parts[0].append(mine[tests[k] : tests[k] + trains[k]])
    first, second = (rng.permutation(np.concatenate(part)) for part in parts)
    return first, second


def _shared(counts: np.ndarray[Any, Any], total: int) -> np.ndarray[Any, Any]:
    """Divide `total` into whole numbers in proportion to `counts` (largest remainder method)."""
    exact = counts * (total / counts.sum())
    found: np.ndarray[Any, Any] = np.floor(exact).astype(np.int64)
    order = np.argsort(found - exact, kind="stable")
    found[order[: total - int(found.sum())]] += 1
    return found
