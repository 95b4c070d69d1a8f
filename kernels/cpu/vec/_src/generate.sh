#!/bin/sh
# Compiles the C sources for every instruction set and writes them as Go
# assembly beside the Go twins. Usage, with clang-22, lld-22 and Go in PATH:
#
#	./generate.sh           every source
#	./generate.sh gemm      gemm.c alone
#
# The same compiler gives the same bytes on every machine. BUILD names the
# folder of the objects, for reading them with llvm-objdump; without it they go
# to a temporary one.
set -eu
cd "$(dirname "$0")"
CC=${CC:-clang-22} LD=${LD:-ld.lld-22}
if [ -z "${BUILD:-}" ]; then
	BUILD=$(mktemp -d)
	trap 'rm -rf "$BUILD"' EXIT
fi
mkdir -p "$BUILD"

common="-std=c17 -O3 -ffreestanding -fno-builtin -fPIC -ffp-contract=off -fno-math-errno
	-fno-stack-protector -fno-asynchronous-unwind-tables -fno-jump-tables -fomit-frame-pointer
	-ffunction-sections -fno-ident -fstack-usage -Wall -Wextra -Werror"
x86="--target=x86_64-unknown-linux-gnu -mno-red-zone -mavx2 -mfma -mf16c"
avx2="$x86 -mtune=znver3"
avx512="$x86 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512 -mtune=icelake-server"
neon="--target=aarch64-unknown-linux-gnu -mcmodel=tiny -ffixed-x18 -ffixed-x28 -mtune=apple-m1"

# compile SOURCE ISA flags...
compile() {
	stem=$BUILD/$1_$2
	src=$1
	shift 2
	$CC $common "$@" -c "$src.c" -o "$stem.o"
	$LD -static -nostdlib --no-undefined --entry=0 -z norelro --build-id=none -T blob.ld "$stem.o" -o "$stem.elf"
}

[ $# -gt 0 ] || set -- $(basename -s .c *.c)
go build -o "$BUILD/generate" generate.go
for source; do
	compile "$source" avx2 $avx2
	compile "$source" avx512 $avx512
	compile "$source" neon $neon
	case $source in int8)
		compile "$source" avxvnni $avx2 -mavxvnni -mtune=alderlake
		compile "$source" avx512vnni $avx512 -mavx512vnni
		compile "$source" neondot $neon -march=armv8.2-a+dotprod
	esac
	"$BUILD/generate" -source "$source" -build "$BUILD" -package ..
done
