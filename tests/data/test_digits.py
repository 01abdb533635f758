"""The embedded digits: whole, attributed, small, and split in a fixed way."""

import zlib
from importlib import resources

import numpy as np

from kernelrt.data import digits, digits_split


def test_images_and_labels_are_those_of_the_published_set() -> None:
    images, labels = digits()
    assert images.shape == (1797, 8, 8)
    assert images.dtype == labels.dtype == np.uint8
    assert int(images.min()) == 0
    assert int(images.max()) == 16
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    # the mean image intensity that the scikit-learn copy of the set is known for
    assert round(float(images.mean()), 4) == 4.8842


def test_each_call_gives_arrays_of_its_own() -> None:
    images, _ = digits()
    images[:] = 0
    assert int(digits()[0].max()) == 16


def test_split_holds_out_a_fixed_fifth() -> None:
    split = digits_split()
    assert split.train_images.shape == (1437, 1, 8, 8)
    assert split.test_images.shape == (360, 1, 8, 8)
    assert split.train_images.dtype == np.float32
    assert split.train_labels.dtype == np.int64
    assert float(split.train_images.max()) == 1.0
    assert zlib.crc32(split.test_labels.astype(np.uint8).tobytes()) == 3181927920
    together = np.concatenate([split.train_images, split.test_images]) * 16
    images, _ = digits()
    assert np.array_equal(
        np.sort(together.reshape(1797, -1), axis=0), np.sort(images.reshape(1797, -1), axis=0)
    )


def test_every_digit_is_held_out_often_enough_to_measure() -> None:
    counts = np.bincount(digits_split().test_labels, minlength=10)
    assert counts.min() >= 25


def test_attribution_ships_beside_the_data_and_both_are_small() -> None:
    folder = resources.files("kernelrt.data")
    text = folder.joinpath("digits.LICENSE.txt").read_text(encoding="utf-8")
    assert "Alpaydin" in text
    assert "Creative Commons Attribution 4.0" in text
    assert len(folder.joinpath("digits.npz").read_bytes()) + len(text) <= 100_000
