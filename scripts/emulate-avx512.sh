#!/usr/bin/env bash
# Runs a package's tests where the processor has AVX-512 and VNNI, on a machine whose processor has
# not: boots Linux in Bochs, an emulator, with the test binary as its only program, and shows what
# the tests say. For changes in kernels/cpu/vec, whose AVX-512 and VNNI code nothing else executes on
# such a machine. Installs what it needs (as root on Debian, else it says what is missing).
#
#   scripts/emulate-avx512.sh                                        # kernels/cpu/vec, 5 minutes of a core
#   scripts/emulate-avx512.sh ./kernels/cpu/vec -test.run=8/VNNI     # 2 minutes
#   scripts/emulate-avx512.sh PACKAGE [TEST FLAG...]
#
# Those times are Bochs 3.0's; 2.7 runs half as fast. The boot takes 20 s of a core, and the tests
# some 150 times what they take outside. MODEL is the processor (`bochs --help cpu`): by default
# sapphire_rapids, which has AVX-VNNI too (Bochs 3.0, Debian 13), else tigerlake. TIMEOUT, 90m by
# default, ends a run that hangs. LOG names a file for all the output. BOCHS is the emulator's
# command, BXSHARE the folder of its BIOS, KERNEL a bzImage to boot.
set -euo pipefail
cd "$(dirname "$0")/.."

package=./kernels/cpu/vec
[ $# = 0 ] || { package=$1; shift; }
# The subtests of AVX-512 and, of those with VNNI, the products of bytes, which alone differ. What
# tests only Go code runs as well elsewhere.
[ $# -gt 0 ] || set -- -test.run='/^AVX512$|8/VNNI' -test.skip='FMA|ScalarFunctions'

die() { echo "emulate-avx512: $*" >&2; exit 1; }

needs=(busybox-static isolinux syslinux-common xorriso)
[ -n "${BOCHS:-}" ] || needs+=(bochs bochs-term bochsbios vgabios)
if ! dpkg -s "${needs[@]}" >/dev/null 2>&1; then
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "needs the Debian packages ${needs[*]}"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${needs[@]}" >/dev/null
fi
bochs=${BOCHS:-bochs-bin}
export BXSHARE=${BXSHARE:-/usr/share/bochs}
if [ -z "${MODEL:-}" ]; then
	MODEL=tigerlake
	[[ $("$bochs" --help cpu 2>&1) != *sapphire_rapids* ]] || MODEL=sapphire_rapids
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/root/{bin,dev,proc,tmp} "$work"/iso

if [ -z "${KERNEL:-}" ]; then
	image=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
	[ -n "$image" ] || die "no package linux-image-cloud-amd64: set KERNEL to a bzImage"
	(cd "$work" && apt-get -o APT::Sandbox::User=root download -qq "$image" && dpkg-deb -x linux-image-*.deb kernel)
	KERNEL=$(echo "$work"/kernel/boot/vmlinuz-*)
fi

# What the guest runs. Go's collector must not use AVX-512: with Bochs 2.7 it frees live objects
# (so it does in programs without a line of our assembly), and it is not what is tested here.
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go test -c -o "$work/root/test" "$package"
[ ! -d "$package/testdata" ] || cp -r "$package/testdata" "$work/root/tmp/"
cp "$(command -v busybox)" "$work/root/bin/busybox"
cat >"$work/root/init" <<EOF
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1
cd /tmp
export GODEBUG=cpu.avx512f=off,cpu.avx512bw=off,cpu.avx512dq=off,cpu.avx512vl=off
/test -test.short -test.v -test.timeout=0 $(printf "'%s' " "$@")
echo "exit status \$?"
/bin/busybox sleep 1 # until the serial line is drained
/bin/busybox poweroff -f
EOF
chmod +x "$work/root/init"
(cd "$work/root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/iso/initrd.gz"

# Where Bochs and Linux do not agree:
#   clearcpuid pku, xsavec, xsaves: leaf 13 of CPUID, after which Linux would turn XSAVE off, and AVX with it;
#   clearcpuid fsrm: Bochs starts without "fast strings", and Linux's memmove then overruns its end;
#   no5lvl: Bochs's return from system management mode refuses five levels of pages;
#   tsc_early_khz: the time stamp counts instructions, not the 2.4 GHz that CPUID promises;
#   idle: a halted processor's time passes at once.
cp "$KERNEL" "$work/iso/vmlinuz"
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$work/iso/"
cat >"$work/iso/isolinux.cfg" <<EOF
default linux
label linux
kernel vmlinuz
append initrd=initrd.gz console=ttyS0,115200 quiet panic=-1 mitigations=off no5lvl idle=halt clearcpuid=pku,xsavec,xsaves,fsrm tsc_early_khz=50000
EOF
xorriso -as mkisofs -quiet -o "$work/boot.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table "$work/iso" 2>/dev/null
cat >"$work/bochsrc" <<EOF
config_interface: textconfig
display_library: term
memory: guest=1024, host=1024
romimage: file="$BXSHARE/BIOS-bochs-latest"
vgaromimage: file="$BXSHARE/VGABIOS-lgpl-latest"
cpu: model=$MODEL, count=1, ips=50000000, reset_on_triple_fault=0
clock: sync=none
ata0-master: type=cdrom, path="$work/boot.iso", status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev="$work/serial"
sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy
log: $work/bochs.log
panic: action=fatal
EOF

# Debian builds Bochs with its debugger, which waits for commands.
printf 'c\nq\n' >"$work/commands"
debugger=()
[[ $("$bochs" --help 2>&1) != *" -rc "* ]] || debugger=(-rc "$work/commands")
echo "$package on an emulated $MODEL: $*"
# The screen is a pseudo-terminal. Bochs waits for ever once it is full, so somebody must read it.
drain() {
	local screen=
	until [ -n "$screen" ]; do
		sleep 1
		screen=$(sed -n 's/^Bochs connected to screen "\(.*\)"$/\1/p' "$work/screen") || return 0
	done
	cat "$screen" >/dev/null 2>&1 || true # until Bochs ends
}
touch "$work/screen"
drain &
TERM=xterm timeout --foreground -s KILL "${TIMEOUT:-90m}" \
	"$bochs" -q -f "$work/bochsrc" "${debugger[@]}" >"$work/screen" 2>&1 </dev/null || true
tr -d '\r' <"$work/serial" >"$work/output" || die "the emulator wrote nothing: $(tail -n 5 "$work/bochs.log")"
[ -z "${LOG:-}" ] || cp "$work/output" "$LOG"
if ! grep -qx 'exit status 0' "$work/output"; then
	tail -n 100 "$work/output"
	grep 'PANIC' "$work/bochs.log" || true
	die "the tests failed, or did not end"
fi
grep -E '^ *--- ' "$work/output"
grep -q -- '--- PASS: .*/AVX512' "$work/output" || die "no test of AVX-512 ran: Linux or Bochs does not offer it"
