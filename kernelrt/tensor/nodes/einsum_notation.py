"""Parse einsum equations, and choose the contraction order."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from kernelrt.errors import DTypeError, ShapeError
from kernelrt.tensor.nodes.arguments import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Term", "order", "parse", "terms"]

#: The axes of an operand or of the result, as letters.
Term = tuple[str, ...]

#: Maximum number of operands for an exhaustive search of the contraction order.
_MOST: Final = 6
_DOTS: Final = "..."
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def parse(operands: Sequence[object]) -> tuple[str, list[object]]:
    """Return the equation and the operands of an einsum call.

    The call has an equation and operands, or operands each followed by a list of axis numbers.
    Numbers from 0 to 51 become letters, upper case first, so that the sort order stays the same.
    """
    if not operands:
        raise ShapeError(
            "einsum: called without arguments; pass an equation and operands, as in "
            "einsum('ij,jk->ik', a, b)"
        )
    first, *rest = operands
    if isinstance(first, str):
        if len(rest) == 1 and isinstance(rest[0], tuple | list):
            rest = list(rest[0])
        return first, rest
    pairs = list(operands)
    output = [pairs.pop()] if len(pairs) % 2 else []
    lists = [*pairs[1::2], *output]
    words = ["".join(_letter(item) for item in _listed(numbers)) for numbers in lists]
    equation = ",".join(words[: len(pairs) // 2])
    return (f"{equation}->{words[-1]}" if output else equation), list(pairs[::2])


def _listed(numbers: object) -> list[object]:
    if not isinstance(numbers, tuple | list):
        raise DTypeError(
            "einsum: expected an equation first, or after each operand a list with one number per "
            f"axis, not {type(numbers).__name__}"
        )
    return list(numbers)


def _letter(item: object) -> str:
    if item is Ellipsis:
        return _DOTS
    number = whole(item)
    if number is None or not 0 <= number < 52:
        raise ShapeError(
            f"einsum: expected axes as numbers from 0 to 51 or Ellipsis, not {item!r}"
        )
    return _LETTERS[number]


def terms(equation: str, ranks: Sequence[int]) -> tuple[list[Term], Term]:
    """Return the letters of each operand and of the result; axes of an ellipsis are digits.

    Raises
    ------
    ShapeError
        The equation is malformed or does not match the operands.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    words = left.split(",")
    if len(words) != len(ranks):
        raise ShapeError(
            f"equation: {equation!r} has {len(words)} operands, but {len(ranks)} were given"
        )
    inputs = [_split(word, equation) for word in words]
    spare = [
        rank - len(term) + term.count(_DOTS) for term, rank in zip(inputs, ranks, strict=True)
    ]
    for i, (term, n, rank) in enumerate(zip(inputs, spare, ranks, strict=True)):
        if n < 0 or (n and _DOTS not in term):
            raise ShapeError(
                f"equation: {words[i]!r} in {equation!r} names {len(term) - term.count(_DOTS)} "
                f"axes of operand {i}, which has {rank}; use '...' for the other axes"
            )
    most = max((n for n, term in zip(spare, inputs, strict=True) if _DOTS in term), default=0)
    dots = tuple(str(k) for k in range(most))
    named = [_filled(t, dots[most - n :]) for t, n in zip(inputs, spare, strict=True)]
    if not arrow:
        every = [letter for word in inputs for letter in word if letter != _DOTS]
        return named, (*dots, *sorted({x for x in every if every.count(x) == 1}))
    output = _split(right, equation)
    result = _filled(output, dots)
    known = set(itertools.chain(*named)) | set(dots)
    for letter in result:
        if letter not in known or result.count(letter) > 1:
            what = "which may occur only once" if letter in known else "which no operand has"
            raise ShapeError(f"equation: the result of {equation!r} has {letter!r}, {what}")
    return named, result


def _split(word: str, equation: str) -> Term:
    """Return the letters of a term, with an ellipsis as one item."""
    before, dots, behind = word.partition(_DOTS)
    letters = (*before, *((_DOTS,) if dots else ()), *behind)
    for letter in letters:
        if letter != _DOTS and letter not in _LETTERS:
            raise ShapeError(
                f"equation: unexpected {letter!r} in {equation!r}; expected letters for axes, "
                "commas between operands, at most one '...' in each, and '->' before the result"
            )
    return letters


def _filled(term: Term, dots: Term) -> Term:
    return tuple(itertools.chain(*(dots if letter == _DOTS else (letter,) for letter in term)))


def order(
    inputs: Sequence[Term], output: Term, size: Callable[[str], int]
) -> list[tuple[int, int]]:
    """Return a contraction order with few multiplications.

    Parameters
    ----------
    inputs, output : tuples of letters
        Axes of the operands and of the result, without repetitions.
    size : callable
        Returns the size of an axis.

    Returns
    -------
    list of pairs of int
        Indices into a list of operands. In each step the two operands are removed, the later one
        first, and their product is appended.
    """
    sets = [frozenset(term) for term in inputs]
    wanted = frozenset(output)
    if len(sets) <= _MOST:
        return _best(sets, wanted, size)
    return _greedy(sets, wanted, size)


Letters = frozenset[str]


def _work(letters: Letters, size: Callable[[str], int]) -> int:
    total = 1
    for letter in letters:
        total *= size(letter)
    return total


def _left(pair: Letters, others: Sequence[Letters], wanted: Letters) -> Letters:
    """Return the axes of `pair` that other operands or the result still need."""
    return pair & wanted.union(*others)


def _best(
    sets: list[Letters], wanted: Letters, size: Callable[[str], int]
) -> list[tuple[int, int]]:
    """Return the cheapest order by exhaustive search; at equal costs, leftmost pairs are first."""
    if len(sets) < 2:
        return []
    found: tuple[int, list[tuple[int, int]]] | None = None

    def visit(parts: list[Letters], done: int, path: list[tuple[int, int]]) -> None:
        nonlocal found
        if found is not None and done >= found[0]:
            return
        if len(parts) == 1:
            found = (done, path)
            return
        for i, j in itertools.combinations(range(len(parts)), 2):
            others = [p for k, p in enumerate(parts) if k not in (i, j)]
            pair = parts[i] | parts[j]
            made = _left(pair, others, wanted)
            visit([*others, made], done + _work(pair, size), [*path, (i, j)])

    visit(sets, 0, [])
    assert found is not None
    return found[1]


def _greedy(
    sets: list[Letters], wanted: Letters, size: Callable[[str], int]
) -> list[tuple[int, int]]:
    """Return an order that greedily picks the pair whose product adds the fewest elements."""
    parts, path = list(sets), []
    while len(parts) > 1:

        def grown(pair: tuple[int, int], parts: list[Letters] = parts) -> tuple[int, int]:
            i, j = pair
            others = [p for k, p in enumerate(parts) if k not in pair]
            both = parts[i] | parts[j]
            more = _work(_left(both, others, wanted), size)
            return more - _work(parts[i], size) - _work(parts[j], size), _work(both, size)

        i, j = min(itertools.combinations(range(len(parts)), 2), key=grown)
        pair = parts[i] | parts[j]
        parts = [p for k, p in enumerate(parts) if k not in (i, j)]
        parts.append(_left(pair, parts, wanted))
        path.append((i, j))
    return path
