"""The data set that kernelrt contains: 1,797 handwritten digits."""

from __future__ import annotations

import io
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DigitsSplit", "digits", "digits_split"]

HELD_OUT: Final = 360
"""Number of held-out images: a fifth of 1,797, rounded up."""


class DigitsSplit(NamedTuple):
    """Training and test images with gray values from 0 to 1, and labels; see :func:`digits_split`.

    Attributes
    ----------
    train_images : ndarray of float32, shape (1437, 1, 8, 8)
        Gray values from 0 to 1.
    train_labels : ndarray of int64, shape (1437,)
        Digits from 0 to 9.
    test_images : ndarray of float32, shape (360, 1, 8, 8)
        Gray values of the test images, which are not for training.
    test_labels : ndarray of int64, shape (360,)
        Digits of the test images.

    Examples
    --------
    >>> split = krt.data.digits_split()
    >>> split.train_images.dtype.name, split.test_labels[:3].shape
    ('float32', (3,))
    """

    train_images: NDArray[np.float32]
    """Shape (1437, 1, 8, 8)."""
    train_labels: NDArray[np.int64]
    """Shape (1437,), values 0..9."""
    test_images: NDArray[np.float32]
    """Shape (360, 1, 8, 8)."""
    test_labels: NDArray[np.int64]
    """Shape (360,), values 0..9."""


def digits() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the test set of "Optical Recognition of Handwritten Digits", as published.

    Returns
    -------
    images : ndarray of uint8, shape (1797, 8, 8)
        Numbers from 0 to 16: how many pixels of a 4x4 block are set.
    labels : ndarray of uint8, shape (1797,)
        Digit that each image shows.

    Notes
    -----
    E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, doi:10.24432/C50P49,
    licensed CC BY 4.0; see digits.LICENSE.txt next to this file.

    Examples
    --------
    >>> from kernelrt.data import digits
    >>> images, labels = digits()
    >>> images.shape, int(labels[0])
    ((1797, 8, 8), 0)
    """
    arrays = _read()
    return arrays["images"], arrays["labels"]


def digits_split() -> DigitsSplit:
    """Return the digits in a fixed random order; the last fifth is for the test.

    The order is stored with the data, so the split is the same everywhere.

    Returns
    -------
    DigitsSplit
        Images as float32 of shape (n, 1, 8, 8), divided by 16, and labels as int64.

    Examples
    --------
    >>> from kernelrt.data import digits_split
    >>> split = digits_split()
    >>> split.train_images.shape, split.test_labels.shape
    ((1437, 1, 8, 8), (360,))
    """
    import numpy as np

    arrays = _read()
    order = arrays["order"]
    images = (arrays["images"][order].astype(np.float32) / 16)[:, None]
    labels = arrays["labels"][order].astype(np.int64)
    return DigitsSplit(
        images[:-HELD_OUT], labels[:-HELD_OUT], images[-HELD_OUT:], labels[-HELD_OUT:]
    )


def _read() -> dict[str, NDArray[Any]]:
    import numpy as np

    packed = resources.files("kernelrt.data").joinpath("digits.npz").read_bytes()
    with np.load(io.BytesIO(packed), allow_pickle=False) as archive:
        return {name: archive[name] for name in ("images", "labels", "order")}
