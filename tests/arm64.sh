#!/usr/bin/env bash
# The digits, and a part of the tests of the code generator and of saved models, on emulated arm64.
#
#   tests/arm64.sh [OPTION...] [FOLDER] [-- PYTEST ARGUMENTS]
#
#   --minutes N   start no test after N minutes (default 5)
#   --cpu NAME    the processor that qemu emulates (default max, which has all features)
#   --no-digits   train no digits
#
# Needs Debian or a relative of it on another processor: apt-get, dpkg, and a Python (PYTHON names
# it) with its venv module. Nothing is installed system-wide. An arm64 Python of the same Debian, qemu,
# a cross compiler and packages of Python go to FOLDER, by default a temporary one that is removed.
# A later run with the same FOLDER takes seconds to start: it downloads nothing, and builds only
# modules whose sources changed.
#
# PYTEST ARGUMENTS select tests as usual (default: tests/codegen tests/saved --files-in-turn).
# Packages that are not there, such as torch, skip tests. C programs of tests are emulated, too.
#
# Ends with a line that starts with "arm64:", and the status of the tests; with 1 if modules do not
# compile or the digits are not learnt, and with 77 if a package cannot be obtained.
set -euo pipefail
{ # bash reads all of this before it runs

source=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
minutes=5 cpu=max digits=yes work=""
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; }
while [ $# -gt 0 ]; do
    case $1 in
        --minutes) minutes=$2; shift ;;
        --cpu) cpu=$2; shift ;;
        --no-digits) digits="" ;;
        --help) usage; exit ;;
        --) shift; break ;;
        -*) echo "unknown option $1"; usage; exit 2 ;;
        *) work=$1 ;;
    esac
    shift
done
[ $# -gt 0 ] || set -- tests/codegen tests/saved --files-in-turn
if [ -z "$work" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
work=$(cd "$work" && pwd)
root="$work/root"
say() { printf '== %s (%s s)\n' "$1" "$SECONDS"; }

# apt for the architecture $1, with its own lists and cache, and as if no package were installed.
apt() {
    local state="$work/apt-$1" architecture=$1
    shift
    mkdir -p "$state/lists/partial" "$state/archives/partial"
    : > "$state/status"
    cat > "$state/apt.conf" << END
APT::Architecture "$architecture";
APT::Architectures "$architecture";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dir::State "$state";
Dir::State::status "$state/status";
Dir::Cache "$state";
Debug::NoLocking "true";
END
    APT_CONFIG="$state/apt.conf" apt-get -qq -o Dpkg::Use-Pty=0 "$@"
}

if [ ! -e "$work/made" ]; then
    named='import sys, tomllib
print(*tomllib.load(open(sys.argv[1], "rb"))[sys.argv[2]][sys.argv[3]])'
    build=$("$python" -c "$named" "$source/pyproject.toml" build-system requires)
    run=$("$python" -c "$named" "$source/pyproject.toml" project dependencies)
    set -E # what fails in functions counts, too
    trap 'exit 77' ERR
    say "arm64 Python and its libraries"
    rm -rf "$root"
    mkdir -p "$root" "$work/site" "$work/host"
    apt arm64 update || true # an index without arm64 fails; what is missing fails below
    version=$(APT_CONFIG="$work/apt-arm64/apt.conf" apt-cache show python3 |
        sed -nE 's/^Depends: .*(python3\.[0-9]+) .*/\1/p' | sort -u | tail -n 1)
    apt arm64 install --download-only -y "$version" "lib$version-dev" libstdc++6
    for package in "$work"/apt-arm64/archives/*.deb; do dpkg -x "$package" "$root"; done
    # Python's own headers, without those of the C library, which the cross compiler has.
    mkdir -p "$work/headers/aarch64-linux-gnu"
    ln -sfn "$root/usr/include/aarch64-linux-gnu/$version" "$work/headers/aarch64-linux-gnu/$version"
    rm -rf "$work/apt-arm64"

    say "qemu"
    here=$(dpkg --print-architecture)
    apt "$here" update || true
    # Of Debian 12 the second is linked statically; from Debian 13 on the first is, too.
    for package in qemu-user qemu-user-static; do
        (cd "$work/apt-$here" && APT_CONFIG="$work/apt-$here/apt.conf" apt-get -qq download "$package")
        dpkg --fsys-tarfile "$work/apt-$here/$package"_*.deb |
            tar -x -C "$work/host" --wildcards './usr/bin/qemu-aarch64*'
        rm -f "$work/apt-$here/$package"_*.deb
    done
    for qemu in "$work"/host/usr/bin/qemu-aarch64{,-static}; do
        if "$qemu" --version > "$work/qemu.log" 2>&1; then ln -sf "$qemu" "$work/qemu"; fi
    done
    "$work/qemu" --version | head -n 1
    rm -rf "$work/apt-$here"

    say "packages of Python, and a cross compiler"
    number=${version#python}
    wheels=(--python-version "$number" --implementation cp --only-binary=:all: --target "$work/site")
    for libc in 2014 _2_17 _2_26 _2_27 _2_28 _2_31 _2_34; do
        wheels+=(--platform "manylinux${libc}_aarch64")
    done
    "$python" -m venv "$work/venv"
    # shellcheck disable=SC2086
    "$work/venv/bin/pip" install -q $build ziglang
    # shellcheck disable=SC2086
    "$work/venv/bin/pip" install -q "${wheels[@]}" $run \
        pytest pytest-xdist pytest-benchmark hypothesis
    trap - ERR
    echo "$version" > "$work/made"
fi
version=$(cat "$work/made")

say "extension modules"
mkdir -p "$work/source"
# The build folder stays: it has what did not change.
find "$work/source" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
(cd "$source" && git ls-files -z --cached --others --exclude-standard |
    tar -c --null --ignore-failed-read -T - 2> "$work/tar.log") | tar -x -C "$work/source"
cd "$work/source"
compiler="$work/venv/bin/python -m ziglang cc -target aarch64-linux-gnu.2.28"
headers="-I$root/usr/include/$version -I$work/headers -I$work/site/numpy/_core/include"
export ZIG_GLOBAL_CACHE_DIR="$work/zig"
CC="$compiler" LDSHARED="$compiler -shared" CFLAGS="$headers" \
    SETUPTOOLS_EXT_SUFFIX=".cpython-3${version#python3.}-aarch64-linux-gnu.so" \
    "$work/venv/bin/python" setup.py -q build_ext --inplace > "$work/build.log" 2>&1 ||
    { tail -n 50 "$work/build.log"; exit 1; }

# A process that Python starts by sys.executable is emulated, too, whatever its environment.
cat > "$work/python" << END
#!/bin/sh
exec "$work/qemu" -cpu "\${ARM64_CPU:-max}" -L "$root" "$root/usr/bin/$version" "\$@"
END
chmod +x "$work/python"
mkdir -p "$root/usr/lib/python3/dist-packages"
cat > "$root/usr/lib/python3/dist-packages/kernelrt.pth" << END
$work/source
$work/site
import sys; sys.executable = sys._base_executable = '$work/python'
END

# C compilers for tests. In place of a program they write a script that starts it under qemu.
mkdir -p "$work/bin"
cat > "$work/bin/cc" << END
#!/bin/bash
kind=cc output=a.out links=yes previous=""
case \$0 in *++) kind=c++ ;; esac
for argument; do
    case \$argument in -c | -E | -S | -fsyntax-only) links="" ;; esac
    [ "\$previous" != -o ] || output=\$argument
    previous=\$argument
done
"$work/venv/bin/python" -m ziglang "\$kind" -target aarch64-linux-gnu.2.28 "\$@" || exit
[ -n "\$links" ] || exit 0
mv "\$output" "\$output.arm64"
printf '#!/bin/sh\nexec %s -cpu %s -L %s "\$0.arm64" "\$@"\n' "$work/qemu" "$cpu" "$root" > "\$output"
chmod +x "\$output"
END
chmod +x "$work/bin/cc"
for name in gcc clang c++; do ln -sf cc "$work/bin/$name"; done
export ARM64_CPU=$cpu PATH="$work/bin:$PATH"
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV
"$work/python" -c 'import platform, sys, llvmlite, numpy
from kernelrt.device.spec import machine
print(platform.machine(), "Python", sys.version.split()[0], "numpy", numpy.__version__,
      "llvmlite", llvmlite.__version__, machine().cpu)'

trained="not trained"
if [ -n "$digits" ]; then
    say "digits"
    "$work/python" -m kernelrt digits --epochs 1 | tee "$work/digits.log"
    trained=$(sed -nE 's/.*test accuracy +([0-9.]+)%.*/\1/p' "$work/digits.log")
    # It is 87 on x86-64; sums in another order change little.
    if ! awk -v found="${trained:-0}" 'BEGIN { exit found < 80 }'; then
        echo "arm64: digits ${trained:-no accuracy}, expected at least 80 % of the test images"
        exit 1
    fi
    trained="$trained %"
fi

say "pytest $*"
status=0
"$work/python" -m pytest -q --minutes "$minutes" -p no:cacheprovider "$@" 2>&1 |
    tee "$work/test.log" || status=$?
tests=$(grep -E '^=+ .*(passed|failed|error).* =+$|^[0-9]+ (passed|failed)' "$work/test.log" |
    tail -n 1 | tr -d =) || true
echo "arm64: digits $trained; ${tests:-no tests ran}; $SECONDS s"
exit "$status"
}
