"""The command line, ``kernelrt``: its commands and their options."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from kernelrt.device.spec import NATIVE, TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["main"]

_INTERRUPTED = 130
_DESCRIPTION = """\
Train a network on handwritten digits and see where the time goes.

Without a command, kernelrt does what "kernelrt digits" does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        Exit status: 0 for success, 1 for an error, 130 after Ctrl-C. Bad options exit with 2.
    """
    options = _parse(list(sys.argv[1:] if argv is None else argv))
    from kernelrt.errors import KernelrtError

    try:
        code: int = options.run(options)
        if sys.stdout is not None:  # it is None if the shell closed it
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader is gone, as in "kernelrt | head": discard further output, also at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("\nkernelrt: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except (KernelrtError, OSError, ImportError) as error:  # ImportError: llvmlite is too old
        print(f"kernelrt: {error}", file=sys.stderr)
        return 1
    return code


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser, commands = _parser()
    if not arguments or arguments[0] not in {*commands, "-h", "--help", "--version"}:
        if arguments and not arguments[0].startswith("-"):
            *most, last = commands
            expected = f"{', '.join(most)} or {last}"
            parser.error(f"unknown command {arguments[0]!r}; expected {expected}")
        arguments = ["digits", *arguments]
    return parser.parse_args(arguments)


def _parser() -> tuple[argparse.ArgumentParser, Iterable[str]]:
    """Return the parser and the names of the commands."""
    from kernelrt._version import __version__

    parser = argparse.ArgumentParser(
        prog="kernelrt",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kernelrt {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="command", required=True)

    digits = commands.add_parser(
        "digits",
        help="train on the digits that ship with kernelrt (the default)",
        description="Train a network on 1,437 images of handwritten digits, and test it on 360 "
        "others. Prints the accuracy, the time to the first step, steps per second, and the "
        "time of each kernel of a step.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    digits.add_argument("--cnn", action="store_true", help="a small CNN instead of the MLP")
    digits.add_argument(
        "--epochs", type=_count, default=30, metavar="N", help="passes over the data"
    )
    digits.add_argument("--batch", type=_count, default=64, metavar="N", help="images per step")
    digits.add_argument("--lr", type=_rate, default=2e-3, metavar="X", help="Adam's learning rate")
    digits.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="seed of weights, dropout and the order"
    )
    digits.add_argument(
        "--threads", type=_count, default=None, metavar="N", help="maximum number of threads"
    )
    digits.add_argument("--no-profile", action="store_true", help="omit the table of kernels")
    digits.set_defaults(run=_digits)

    env = commands.add_parser(
        "env",
        help="print version, CPU, threads, LLVM and the cache folder",
        description="Print the properties of this machine that kernelrt detected; for bug reports.",
        allow_abbrev=False,
    )
    env.set_defaults(run=_env)

    calibrate = commands.add_parser(
        "calibrate",
        help="measure the cost of ops, bytes and calls on this machine",
        description="Measure the numbers of the cost model on this machine, and print them next to "
        "the built-in ones. Nothing is stored: plans use the built-in numbers, so results are "
        "bitwise the same whether or not this was run. Takes about ten seconds on an idle machine.",
        allow_abbrev=False,
    )
    calibrate.add_argument(
        "--target", choices=(NATIVE, *TARGETS), default=NATIVE,
        help="processor to generate code for, which this machine must be able to run",
    )  # fmt: skip
    calibrate.add_argument("--json", action="store_true", help="print one JSON object")
    calibrate.set_defaults(run=_calibrate)

    view = commands.add_parser(
        "view",
        help="run a script and draw the plans of its jitted functions as an HTML page",
        description="Run a Python script, then measure the plans of the jitted functions that it "
        "called, and write one HTML page that needs no network: kernels, timeline, roofline, "
        "memory, and the lines of source with their share of the time.",
        allow_abbrev=False,
    )
    view.add_argument("-o", "--output", default="plans.html", metavar="FILE", help="the page")
    view.add_argument("script", help="path of the script")
    view.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    view.set_defaults(run=_view)

    export = commands.add_parser(
        "export",
        help="write a model file as C sources",
        description="Write a model file (see kernelrt.save) as C sources: the model as data, a "
        "header with its functions, the C core, an example and a CMake file. Any C11 compiler for "
        "Linux or macOS builds them.",
        allow_abbrev=False,
    )
    export.add_argument("model", help="path of the model file")
    export.add_argument("--c", required=True, metavar="FOLDER", help="folder to write to")
    export.add_argument("--name", help="name of the C files and prefix of the functions")
    export.set_defaults(run=_export)

    docs = commands.add_parser(
        "docs",
        help="list the pages of the documentation, or print one",
        description="List the pages of the documentation, which are installed with kernelrt, or "
        "print one of them.",
        allow_abbrev=False,
    )
    docs.add_argument("page", nargs="?", help='name of a page, as "jit" or "docs/jit.md"')
    docs.set_defaults(run=_docs)
    return parser, commands.choices


def _digits(options: argparse.Namespace) -> int:
    from kernelrt.cli import digits

    return digits.run(options)


def _env(options: argparse.Namespace) -> int:  # noqa: ARG001 - signature of all commands
    from kernelrt.cli import env

    return env.run()


def _calibrate(options: argparse.Namespace) -> int:
    from kernelrt.cli import calibrate

    return calibrate.run(options.target, as_json=options.json)


def _view(options: argparse.Namespace) -> int:
    from kernelrt.cli import show

    return show.run(options.script, options.arguments, options.output)


def _export(options: argparse.Namespace) -> int:
    from kernelrt.cli import export

    return export.run(options.model, options.c, options.name)


def _docs(options: argparse.Namespace) -> int:
    from kernelrt.cli import pages

    return pages.run(options.page)


def _count(text: str) -> int:
    return _whole(text, least=1)


def _seed(text: str) -> int:
    return _whole(text, least=0)


def _whole(text: str, *, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an integer, not {text!r}") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"expected at least {least}, not {value}")
    return value


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, not {text!r}") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number, not {text}")
    return value
