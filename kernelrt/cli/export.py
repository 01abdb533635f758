"""``kernelrt export``: writes a model file as C sources, for programs without Python."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import kernelrt
from kernelrt.jit.loading import load
from kernelrt.native.routines import BY_NAME
from kernelrt.util.atomic_file import checked_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelrt.jit.loading import LoadedModel

__all__ = ["run"]

CORE: Final = (
    "build", "choice", "graph", "model", "platform", "plan", "pool", "processor", "region",
    "thread",
)  # fmt: skip
FLAGS: Final = ("-O3", "-ffp-contract=fast", "-fno-math-errno")
"""Flags for which routines compute the bits that they compute in Python."""
ROUTINES: Final = ("cumsum", "linalg", "routines", "running", "sort")
#: C type of each dtype; 16-bit floats come as bits.
_TYPES = {
    "bool": "bool", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float",
    "float64": "double",
}  # fmt: skip
_BYTES_A_LINE = 20

_HEADER = """\
/* {name}.h - the functions of a model, saved by kernelrt {version}. */
#ifndef {guard}_H
#define {guard}_H

#include "kernelrt/krt_model.h"

#ifdef __cplusplus
extern "C" {{
#endif

/* Open the model, whose file is part of this program. See krt_model.h for what else it can do. */
krt_status {name}_open(krt_model **out, krt_message *why);

/* Results that are NULL are not copied. */

{declarations}
#ifdef __cplusplus
}}
#endif

#endif
"""

_SOURCE = """\
/* {name}.c - a model file as data, and its functions. */
#include "{name}.h"

#include <string.h>
{include}
static const unsigned char content[] = {{
{content}
}};

krt_status {name}_open(krt_model **out, krt_message *why)
{{
    krt_model_options options = {{0}};
{routine}    return krt_model_read(content, sizeof content, &options, out, why);
}}

{definitions}"""

_MAIN = """\
/* main.c - calls a function of the model once, with zeros. */
#include "{name}.h"

#include <stdio.h>

int main(void)
{{
    krt_message why;
    krt_model *model;
    krt_port output;
    if ({name}_open(&model, &why) || krt_model_run(model, 0, &why)) {{
        fprintf(stderr, "%s\\n", why.text);
        return 1;
    }}
    for (int i = 0; krt_model_output(model, 0, i, &output) == KRT_OK; ++i)
        printf("%s: %zu bytes\\n", output.name, output.nbytes);
    krt_model_close(model);
    return 0;
}}
"""

_CMAKE = """\
cmake_minimum_required(VERSION 3.10)
project({name} C)
set(CMAKE_C_STANDARD 11)
find_package(Threads REQUIRED)
file(GLOB KERNELRT_SOURCES kernelrt/*.c)
add_library({name} STATIC {name}.c ${{KERNELRT_SOURCES}})
# With these flags linear algebra computes the bits that it computes in Python.
target_compile_options({name} PRIVATE {flags})
set_target_properties({name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_link_libraries({name} PUBLIC Threads::Threads m)
add_executable({name}_example example/main.c)
target_link_libraries({name}_example {name})
"""


@dataclass(frozen=True, slots=True)
class _Function:
    """A function of the model in C."""

    number: int
    name: str
    about: str
    sizes: list[str]  # names of the parameters
    inputs: list[tuple[int, str, str]]  # number, type, name
    outputs: list[tuple[int, str, str]]


def run(model: str, folder: str, name: str | None) -> int:
    """Write C sources for a model file.

    Parameters
    ----------
    model : str
        Path of the model file.
    folder : str
        Folder to write to; it is created if needed.
    name : str or None
        Name of the C files, and prefix of the functions; by default the name of the model file.

    Returns
    -------
    int
        Exit status: 0.
    """
    path = checked_path(model)
    opened = load(path)
    prefix = _file_name(name or path.stem)
    target = Path(folder)
    (target / "kernelrt").mkdir(parents=True, exist_ok=True)
    content = path.read_bytes()
    routines = any(f"{name}\0".encode() in content for name in BY_NAME)
    _copy_sources(target / "kernelrt", [*CORE, *(ROUTINES if routines else ())])
    functions = list(_functions(opened, prefix))
    texts = {
        f"{prefix}.h": _HEADER.format(
            name=prefix, guard=prefix.upper(), version=kernelrt.__version__,
            declarations="".join(f"{_comment(f)}{_prototype(f)};\n\n" for f in functions),
        ),
        f"{prefix}.c": _SOURCE.format(
            name=prefix, content="\n".join(_array(content)),
            include='\n#include "kernelrt/routines.h"\n' if routines else "",
            routine="    options.routine = krt_find_routine;\n" if routines else "",
            definitions="\n".join(_definition(f) for f in functions),
        ),
        "example/main.c": _MAIN.format(name=prefix),
        "CMakeLists.txt": _CMAKE.format(name=prefix, flags=" ".join(FLAGS)),
    }  # fmt: skip
    (target / "example").mkdir(exist_ok=True)
    for file, text in texts.items():
        (target / file).write_text(text, encoding="utf-8")
    print(
        f"wrote {', '.join(texts)} and kernelrt/ to {folder}\n"
        f"build: cc -std=c11 {' '.join(FLAGS)} -pthread -I{folder} main.c {folder}/*.c "
        f"{folder}/kernelrt/*.c -lm"
    )
    return 0


def sources() -> Path:
    """Return the folder of the C sources: in the installed package, or beside it in a checkout."""
    package = Path(kernelrt.__file__).parent
    for folder in (package / "csrc", package.parent / "csrc"):
        if (folder / "krt_model.h").exists():
            return folder
    raise FileNotFoundError(f"the C sources are not in {package / 'csrc'}; reinstall kernelrt")


def _copy_sources(target: Path, names: Sequence[str]) -> None:
    """Copy C files, and all headers that they include directly or through other headers."""
    folder = sources()
    files = [f"{name}.c" for name in names]
    for file in files:  # grows
        text = (folder / file).read_text(encoding="utf-8")
        included = re.findall(r'^\s*#\s*(?:include|define\s+BODY)\s+"(\w+\.h)"', text, re.MULTILINE)
        files += [header for header in included if header not in files]
        shutil.copyfile(folder / file, target / file)


def _functions(model: LoadedModel, prefix: str) -> Iterator[_Function]:
    taken = {f"{prefix}_open"}
    for described in model.describe():
        name = _unique(f"{prefix}_{_letters(described.name)}", taken)
        names = {"model", "why", "port", "status", "sizes"}
        sizes = [_unique(_identifier(size), names) for size in described.sizes]
        sides = (described.inputs, described.outputs)
        ports = [
            [
                (i, _TYPES.get(dtype, f"{dtype}_t"), _unique(_identifier(port), names))
                for i, (port, dtype, _) in enumerate(side) if dtype
            ]
            for side in sides
        ]  # fmt: skip
        texts = [
            f"{port}: {dtype} ({', '.join(map(str, shape))})" if shape else f"{port}: {dtype}"
            for side in sides for port, dtype, shape in side if dtype
        ]  # fmt: skip
        yield _Function(
            described.number, name, "; ".join(texts), sizes, *ports
        )


def _comment(function: _Function) -> str:
    about = function.about.replace("*/", "* /").replace("/*", "/ *")
    return f"/* {about} */\n" if about else ""


def _prototype(function: _Function) -> str:
    parameters = [
        "krt_model *model", *(f"int64_t {size}" for size in function.sizes),
        *(f"const {kind} *{name}" for _, kind, name in function.inputs),
        *(f"{kind} *{name}" for _, kind, name in function.outputs), "krt_message *why",
    ]  # fmt: skip
    return f"krt_status {function.name}({', '.join(parameters)})"


def _definition(function: _Function) -> str:
    lines = [_prototype(function), "{"]
    if function.inputs or function.outputs:
        lines.append("    krt_port port;")
    lines.append("    krt_status status = KRT_OK;")
    if function.sizes:
        values = ", ".join(function.sizes)
        lines += [
            f"    const int64_t sizes[] = {{{values}}};",
            f"    if ((status = krt_model_set_sizes(model, {function.number}, sizes, why)))",
            "        return status;",
        ]
    for number, _, name in function.inputs:
        lines += [
            f"    krt_model_input(model, {function.number}, {number}, &port);",
            f"    memcpy(port.data, {name}, port.nbytes);",
        ]
    lines += [
        f"    if ((status = krt_model_run(model, {function.number}, why)))",
        "        return status;",
    ]
    for number, _, name in function.outputs:
        lines += [
            f"    krt_model_output(model, {function.number}, {number}, &port);",
            f"    if ({name})",
            f"        memcpy({name}, port.data, port.nbytes);",
        ]
    return "\n".join([*lines, "    return KRT_OK;", "}", ""])


def _array(content: bytes) -> Iterator[str]:
    for i in range(0, len(content), _BYTES_A_LINE):
        yield "    " + ",".join(map(str, content[i : i + _BYTES_A_LINE])) + ","


def _letters(text: str) -> str:
    """Return `text` with characters that C identifiers may contain."""
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "model"


def _identifier(text: str) -> str:
    """Return the name of a parameter in C that looks like `text`.

    If C, its headers or the core use the name, an underscore is appended.
    """
    found = _letters(text)
    if found[0].isdigit() or found[0] == "_":
        found = f"x{found}"
    used = found in _KEYWORDS or found.lower().startswith("krt_") or found.endswith("_t")
    return f"{found}_" if used or found.isupper() else found


def _file_name(text: str) -> str:
    """Return the name of the C files and the prefix of functions."""
    found = _identifier(text)
    return f"{found}_model" if found in _HEADERS or found.startswith("krt") else found


def _unique(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found


_KEYWORDS = frozenset({
    "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "continue",
    "default", "delete", "do", "double", "else", "enum", "errno", "explicit", "export", "extern",
    "false", "float", "for", "friend", "goto", "if", "inline", "int", "linux", "long", "main",
    "memcpy", "mutable", "namespace", "new", "not", "operator", "or", "private", "protected",
    "public", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct",
    "switch", "template", "this", "throw", "true", "try", "typedef", "typename", "typeof", "union",
    "unix", "unsigned", "using", "virtual", "void", "volatile", "while", "xor",
})  # fmt: skip
#: Headers of C and POSIX: with the folder of the model among those of headers, a file of such a
#: name would hide them.
_HEADERS = frozenset({
    "assert", "complex", "ctype", "dirent", "errno", "fcntl", "features", "fenv", "float",
    "inttypes", "limits", "locale", "main", "math", "memory", "module", "plan", "pthread", "sched",
    "signal", "stdarg", "stdatomic", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string",
    "strings", "threads", "time", "unistd", "wchar",
})  # fmt: skip
