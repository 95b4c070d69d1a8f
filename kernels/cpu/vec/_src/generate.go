// Generate writes the primitives that clang has compiled as Go assembly: the
// linked code of one C source and one instruction set becomes one symbol, and
// each of its functions a stub that calls into it.
//
// It refuses what would not survive the move: calls, relocations that depend on
// the place of the code, variables, frames that have no fixed size.
package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// isa is an instruction set as the generator sees it.
type isa struct {
	name    string // of the constant in Go
	arch    string // GOARCH
	machine elf.Machine
	// relocations against constants in the same section, resolved for good when linked
	relative []uint32
}

var isas = []isa{
	{"AVX2", "amd64", elf.EM_X86_64, []uint32{uint32(elf.R_X86_64_PC32)}},
	{"AVX512", "amd64", elf.EM_X86_64, []uint32{uint32(elf.R_X86_64_PC32)}},
	{"AVXVNNI", "amd64", elf.EM_X86_64, []uint32{uint32(elf.R_X86_64_PC32)}},
	{"AVX512VNNI", "amd64", elf.EM_X86_64, []uint32{uint32(elf.R_X86_64_PC32)}},
	{"NEON", "arm64", elf.EM_AARCH64, []uint32{uint32(elf.R_AARCH64_ADR_PREL_LO21), uint32(elf.R_AARCH64_LD_PREL_LO19)}},
	{"NEONDot", "arm64", elf.EM_AARCH64, []uint32{uint32(elf.R_AARCH64_ADR_PREL_LO21), uint32(elf.R_AARCH64_LD_PREL_LO19)}},
}

// maxFrame bounds the stack of a function: goroutine stacks begin at 2 KiB and
// are copied when they grow.
const maxFrame = 8192

// function is one exported C function.
type function struct {
	name   string // also its field in Kernels, or Field_FORMAT
	offset uint64
	stack  int // bytes, saved registers included
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("generate: ")
	source := flag.String("source", "", "name of the C source, without .c")
	build := flag.String("build", "", "folder with SOURCE_ISA.o, .elf and .su")
	dir := flag.String("package", "..", "folder of the Go package")
	flag.Parse()

	fields, err := kernelFields(filepath.Join(*dir, "vec.go"))
	check(err)
	setters := map[string]map[string][]function{} // arch → ISA → functions
	for _, isa := range isas {
		stem := filepath.Join(*build, *source+"_"+strings.ToLower(isa.name))
		if _, err := os.Stat(stem + ".o"); err != nil {
			continue // most sources gain nothing from the extensions of an instruction set
		}
		check(checkObject(stem+".o", isa))
		code, functions, err := readLinked(stem+".elf", isa)
		check(err)
		check(readStack(stem+".su", functions))
		for _, f := range functions {
			if _, ok := fields[fieldOf(f.name)]; !ok {
				log.Fatalf("%s.c: %s is not a field of Kernels", *source, f.name)
			}
		}
		var out bytes.Buffer
		writeAssembly(&out, *source, isa, code, functions)
		name := fmt.Sprintf("asm_%s_%s_%s.s", *source, strings.ToLower(isa.name), isa.arch)
		check(os.WriteFile(filepath.Join(*dir, name), out.Bytes(), 0o644))
		if setters[isa.arch] == nil {
			setters[isa.arch] = map[string][]function{}
		}
		setters[isa.arch][isa.name] = functions
	}
	for arch, byISA := range setters {
		text, err := format.Source(declarations(*source, byISA, fields))
		check(err)
		check(os.WriteFile(filepath.Join(*dir, fmt.Sprintf("asm_%s_%s.go", *source, arch)), text, 0o644))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// kernelFields returns the argument type of every function in Kernels.
func kernelFields(path string) (map[string]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Kernels" {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			t := field.Type
			if array, ok := t.(*ast.ArrayType); ok {
				t = array.Elt
			}
			if f, ok := t.(*ast.FuncType); ok {
				for _, name := range field.Names {
					fields[name.Name] = f.Params.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name
				}
			}
		}
		return false
	})
	if len(fields) == 0 {
		return nil, fmt.Errorf("%s: no struct Kernels with functions", path)
	}
	return fields, nil
}

func fieldOf(name string) string {
	field, _, _ := strings.Cut(name, "_")
	return field
}

// checkObject refuses an object file with relocations that linking cannot
// resolve for good, and with calls: every function has a section of its own, so
// that a call to it leaves a relocation.
func checkObject(path string, isa isa) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return err
	}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Flags&elf.SHF_WRITE != 0 && s.Size > 0 {
			return fmt.Errorf("%s: has variables (section %s)", path, s.Name)
		}
		if s.Type != elf.SHT_RELA || f.Sections[s.Info].Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		data, err := s.Data()
		if err != nil {
			return err
		}
		for ; len(data) >= 24; data = data[24:] {
			info := binary.LittleEndian.Uint64(data[8:])
			symbol := symbols[info>>32-1]
			code := int(symbol.Section) < len(f.Sections) && f.Sections[symbol.Section].Flags&elf.SHF_EXECINSTR != 0
			if code || symbol.Section == elf.SHN_UNDEF {
				return fmt.Errorf("%s: %s calls %s; functions must be inlined", path, f.Sections[s.Info].Name, symbol.Name)
			}
			if !slices.Contains(isa.relative, uint32(info)) {
				return fmt.Errorf("%s: relocation of type %d in %s", path, uint32(info), f.Sections[s.Info].Name)
			}
		}
	}
	return nil
}

// readLinked returns the linked code and its functions by offset.
func readLinked(path string, isa isa) (code []byte, functions []function, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if f.Machine != isa.machine {
		return nil, nil, fmt.Errorf("%s: is for %v", path, f.Machine)
	}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Name != ".text" {
			return nil, nil, fmt.Errorf("%s: section %s besides .text", path, s.Name)
		}
	}
	text := f.Section(".text")
	if text.Addr != 0 || text.Addralign > 64 {
		return nil, nil, fmt.Errorf("%s: .text at %#x, aligned to %d", path, text.Addr, text.Addralign)
	}
	if code, err = text.Data(); err != nil {
		return nil, nil, err
	}
	for len(code)%8 != 0 {
		code = append(code, 0)
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, nil, err
	}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && elf.ST_BIND(s.Info) == elf.STB_GLOBAL {
			functions = append(functions, function{name: s.Name, offset: s.Value, stack: -1})
		}
	}
	slices.SortFunc(functions, func(a, b function) int { return int(a.offset) - int(b.offset) })
	return code, functions, nil
}

// readStack fills in the stack that the compiler says each function uses.
func readStack(path string, functions []function) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.Fields(line) // file:line:function size kind
		name := parts[0][strings.LastIndexByte(parts[0], ':')+1:]
		size, err := strconv.Atoi(parts[1])
		if err != nil || parts[2] != "static" || size > maxFrame {
			return fmt.Errorf("%s: %s: stack of %s bytes, %s; want at most %d, static", path, name, parts[1], parts[2], maxFrame)
		}
		for i := range functions {
			if functions[i].name == name {
				functions[i].stack = size
			}
		}
	}
	for _, f := range functions {
		if f.stack < 0 {
			return fmt.Errorf("%s: no stack size of %s", path, f.name)
		}
	}
	return nil
}

// goName is the name of a function in Go, such as avx2Gemv_Q4_1.
func goName(isaName, function string) string { return strings.ToLower(isaName) + function }

func writeAssembly(out *bytes.Buffer, source string, isa isa, code []byte, functions []function) {
	blob := fmt.Sprintf("·%s_%s", strings.ToLower(isa.name), source)
	fmt.Fprintf(out, "// Code generated by _src/generate.sh from _src/%s.c; DO NOT EDIT.\n\n", source)
	fmt.Fprintf(out, "//go:build !noasm\n\n#include \"textflag.h\"\n")
	for _, f := range functions {
		fmt.Fprintf(out, "\n// func %s(args *Args)\n", goName(isa.name, f.name))
		if isa.arch == "amd64" {
			stubAMD64(out, isa, f, blob)
		} else {
			stubARM64(out, isa, f, blob)
		}
	}
	fmt.Fprintf(out, "\n// The code and its constants, never entered from the top.\n")
	fmt.Fprintf(out, "TEXT %s(SB), NOSPLIT|NOFRAME, $0-0\n\tPCALIGN $64", blob)
	size, directive := 8, "QUAD"
	if isa.arch == "arm64" {
		size, directive = 4, "WORD"
	}
	for i := 0; i < len(code); i += size {
		sep := "; "
		if i%32 == 0 {
			sep = "\n\t"
		}
		word := binary.LittleEndian.Uint64(append(slices.Clone(code[i:i+size]), 0, 0, 0, 0))
		fmt.Fprintf(out, "%s%s $0x%0*x", sep, directive, 2*size, word)
	}
	out.WriteByte('\n')
}

// stubAMD64 writes a stub for the System V convention. A function that uses the
// stack gets the frame of the stub, aligned to 64 at its top, as C expects 16
// and may align to 64 itself. RBX survives the call.
func stubAMD64(out *bytes.Buffer, isa isa, f function, blob string) {
	name := goName(isa.name, f.name)
	if f.stack == 0 {
		fmt.Fprintf(out, "TEXT ·%s(SB), NOSPLIT, $0-8\n\tMOVQ args+0(FP), DI\n\tCALL %s+%d(SB)\n", name, blob, f.offset)
	} else {
		frame := (f.stack + 8 + 64 + 64 + 63) &^ 63 // return address, alignment here and there
		fmt.Fprintf(out, "TEXT ·%s(SB), 0, $%d-8\n\tMOVQ args+0(FP), DI\n", name, frame)
		fmt.Fprintf(out, "\tMOVQ SP, BX\n\tLEAQ %d(SP), AX\n\tANDQ $~63, AX\n\tMOVQ AX, SP\n", frame)
		fmt.Fprintf(out, "\tCALL %s+%d(SB)\n\tMOVQ BX, SP\n", blob, f.offset)
	}
	fmt.Fprintf(out, "\tVZEROUPPER\n\tRET\n")
}

// stubARM64 is the same for AAPCS64. The frame begins 16 bytes above the saved
// link register; R19 survives the call. Functions align their stack to 64 here
// too, which the size that the compiler reports leaves out.
func stubARM64(out *bytes.Buffer, isa isa, f function, blob string) {
	name := goName(isa.name, f.name)
	if f.stack == 0 {
		fmt.Fprintf(out, "TEXT ·%s(SB), NOSPLIT, $0-8\n\tMOVD args+0(FP), R0\n\tCALL %s+%d(SB)\n", name, blob, f.offset)
	} else {
		frame := (f.stack + 16 + 64 + 64 + 63) &^ 63 // alignment here and there
		fmt.Fprintf(out, "TEXT ·%s(SB), 0, $%d-8\n\tMOVD args+0(FP), R0\n", name, frame)
		fmt.Fprintf(out, "\tMOVD RSP, R19\n\tADD $%d, R19, R9\n\tAND $~63, R9, R9\n\tMOVD R9, RSP\n", frame)
		fmt.Fprintf(out, "\tCALL %s+%d(SB)\n\tMOVD R19, RSP\n", blob, f.offset)
	}
	fmt.Fprintf(out, "\tRET\n")
}

// declarations returns the Go file that declares the functions of one source
// and puts them into the tables.
func declarations(source string, byISA map[string][]function, fields map[string]string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "// Code generated by _src/generate.sh from _src/%s.c; DO NOT EDIT.\n\n", source)
	fmt.Fprintf(&out, "//go:build !noasm\n\npackage vec\n\n")
	names := make([]string, 0, len(byISA))
	formats := false
	for name := range byISA {
		names = append(names, name)
	}
	slices.Sort(names)
	var body bytes.Buffer
	fmt.Fprintf(&body, "// set%s puts the functions of %s.c into k.\nfunc set%s(k *Kernels) {\n\tswitch k.ISA {\n",
		strings.Title(source), source, strings.Title(source))
	for _, name := range names {
		fmt.Fprintf(&body, "\tcase %s:\n", name)
		for _, f := range byISA[name] {
			field, index, byFormat := strings.Cut(f.name, "_")
			if byFormat {
				formats = true
				index = "[quant." + index + "]"
			}
			fmt.Fprintf(&body, "\t\tk.%s%s = %s\n", field, index, goName(name, f.name))
		}
	}
	fmt.Fprintf(&body, "\t}\n}\n")
	if formats {
		fmt.Fprintf(&out, "import \"graft/kernels/quant\"\n\n")
	}
	out.Write(body.Bytes())
	for _, name := range names {
		for _, f := range byISA[name] {
			fmt.Fprintf(&out, "\n//go:noescape\nfunc %s(args *%s)\n", goName(name, f.name), fields[fieldOf(f.name)])
		}
	}
	return out.Bytes()
}
