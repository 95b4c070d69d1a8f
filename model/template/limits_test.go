package template

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostile are templates that must end with an error instead of using up the
// machine.
var hostile = map[string]string{
	"huge string":         `{{ 'a' * 10**9 }}`,
	"huge string twice":   `{{ ('a' * 10**6) * 10**6 }}`,
	"huge list":           `{{ [0] * 10**9 }}`,
	"huge range":          `{{ range(300000000) }}`,
	"overflowing range":   `{{ range(-9223372036854775807, 9223372036854775807) }}`,
	"huge power":          `{{ 10**(10**10) }}`,
	"power tower":         `{% set ns = namespace(x=3) %}{% for i in range(100) %}{% set ns.x = ns.x * ns.x %}{% endfor %}`,
	"recursive macro":     `{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}`,
	"recursive caller":    `{% macro m() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call m() %}{{ r() }}{% endcall %}{% endmacro %}{{ r() }}`,
	"recursive loop":      `{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}`,
	"doubling string":     `{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}`,
	"doubling by plus":    `{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`,
	"doubling by join":    `{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s]|join %}{% endfor %}`,
	"doubling by format":  `{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = '{0}{0}'.format(ns.s) %}{% endfor %}`,
	"doubling by %":       `{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}`,
	"doubling by block":   `{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}`,
	"doubling list":       `{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}`,
	"doubling repr":       `{% set ns = namespace(l=['a']) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}`,
	"doubling json":       `{% set ns = namespace(l=['a']) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}`,
	"doubling equality":   `{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(100) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}`,
	"doubling key":        `{% set ns = namespace(l=(1,)) %}{% for i in range(100) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}`,
	"growing replace":     `{{ ('a' * 100000)|replace('a', 'b' * 100000) }}`,
	"empty replace":       `{{ ('a' * 100000).replace('', 'b' * 100000) }}`,
	"wide format":         `{{ '{:1000000000}'.format(1) }}`,
	"wide percent":        `{{ '%1000000000d' % 1 }}`,
	"precise percent":     `{{ '%.1000000000f' % 1.5 }}`,
	"precise integer":     `{{ '%.1000000000d' % 1 }}`,
	"wide zeros":          `{{ '{:01000000000,}'.format(1) }}`,
	"wide centre":         `{{ 'a'|center(10**12) }}`,
	"wide zfill":          `{{ 'a'.zfill(10**12) }}`,
	"wide tabs":           `{{ 'a\tb'.expandtabs(10**12) }}`,
	"wide indent":         `{{ ('\n' * 100000)|indent(100000, blank=true) }}`,
	"wide json":           `{{ [[1]]|tojson(indent=10**12) }}`,
	"json indent growth":  `{% set ns = namespace(l=[1]) %}{% for i in range(400) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson(indent=1000000) }}`,
	"wide separators":     `{{ range(90000)|list|tojson(separators=(',' * 100000, ':')) }}`,
	"wide join":           `{{ range(90000)|join(',' * 100000) }}`,
	"many slices":         `{{ [1]|slice(10**9)|list }}`,
	"wide batch":          `{{ [1]|batch(10**9, 0)|list }}`,
	"long loop":           `{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}`,
	"long output":         `{% set s = 'a' * 1000000 %}{% for a in range(100000) %}{{ s }}{% endfor %}`,
	"deep value":          `{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}`,
	"deep json":           `{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x|tojson }}`,
	"deep equality":       `{% set ns = namespace(x=[], y=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}`,
	"deep order":          `{% set ns = namespace(x=[], y=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x < ns.y }}`,
	"deep key":            `{% set ns = namespace(x=()) %}{% for i in range(90000) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}`,
	"namespace in itself": `{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}`,
	"scanning":            `{% set s = 'a' * 8000000 %}{% for i in range(100000) %}{{ 'b' in s }}{% endfor %}`,
	"counting":            `{% set s = 'é' * 4000000 %}{% for i in range(100000) %}{{ s|length }}{% endfor %}`,
	"indexing":            `{% set s = 'é' * 4000000 %}{% for i in range(100000) %}{{ s[-1] }}{% endfor %}`,
	"keeping strings":     `{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = ns.l + ['a' * 8000000] %}{% endfor %}`,
	"keeping captures":    `{% set s = 'a' * 1000000 %}{% set ns = namespace(l=[]) %}{% for i in range(10000) %}{% set x %}{{ s }}{% endset %}{% set ns.l = ns.l + [x] %}{% endfor %}`,
	"nested maps":         `{% set ns = namespace(x=[1]) %}{% for i in range(90000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}{{ ns.x|list }}`,
	"map of map":          `{% set ns = namespace(x=[[1]]) %}{{ [ns.x]|map('map', 'map', 'map', 'map', 'string')|list }}{% for i in range(10**5) %}{% for j in range(10**5) %}{% endfor %}{% endfor %}`,
	"large JSON":          `{{ ('[' * 1000000)|from_json }}`,
	"exponent":            `{{ 2.0 ** 100000 }}`,
	"round":               `{{ (2**16000)|round(-4000000000) }}{{ 10**5000 }}`,
	"dict of args":        `{% macro m() %}{{ kwargs|length }}{% endmacro %}{% for i in range(100000) %}{{ m(**dict(range(90000)|map('string')|map('list')|map('first')|batch(2))) }}{% endfor %}`,
	"split":               `{{ ('a ' * 4000000).split()|length }}`,
	"characters":          `{{ ('a' * 8000000)|list|length }}`,
}

// TestHostileTemplates expects an error, and little memory, from each.
func TestHostileTemplates(t *testing.T) {
	for name, source := range hostile {
		t.Run(name, func(t *testing.T) {
			tmpl, err := Parse(source)
			require.NoError(t, err)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = tmpl.Render(nil, Limits{Steps: 1_000_000})
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			var e *Error
			assert.True(t, errors.As(err, &e), "%T", err)
			made := after.TotalAlloc - before.TotalAlloc
			assert.Less(t, made, uint64(2<<30), "bytes made: %d", made)
		})
	}
}

// TestHostileSources expects a syntax error from sources that nest or grow
// without end.
func TestHostileSources(t *testing.T) {
	n := maxSource / 16
	for name, source := range map[string]string{
		"parentheses":      strings.Repeat("(", 2_000_000),
		"many parentheses": "{{ " + strings.Repeat("(", n) + strings.Repeat(")", n) + " }}",
		"brackets":         "{{ " + strings.Repeat("[", n),
		"braces":           "{{ " + strings.Repeat("{1:", n),
		"not":              "{{ " + strings.Repeat("not ", n) + "1 }}",
		"minus":            "{{ " + strings.Repeat("-", n) + "1 }}",
		"plus chain":       "{{ 1" + strings.Repeat("+1", n) + " }}",
		"power chain":      "{{ 1" + strings.Repeat("**1", n) + " }}",
		"or chain":         "{{ 1" + strings.Repeat(" or 1", n) + " }}",
		"attribute chain":  "{{ a" + strings.Repeat(".a", n) + " }}",
		"call chain":       "{{ a" + strings.Repeat("()", n) + " }}",
		"filter chain":     "{{ a" + strings.Repeat("|list", n) + " }}",
		"test chain":       "{{ a" + strings.Repeat(" is defined and a", n) + " }}",
		"if else chain":    "{{ 1" + strings.Repeat(" if 1 else 1", n) + " }}",
		"if if chain":      "{{ 1" + strings.Repeat(" if 1", n) + " }}",
		"nested if":        strings.Repeat("{% if 1 %}", n),
		"elif chain":       "{% if 1 %}" + strings.Repeat("{% elif 1 %}", n) + "{% endif %}",
		"nested for":       strings.Repeat("{% for a in b %}", n),
		"nested macro":     strings.Repeat("{% macro m() %}", n),
		"nested target":    "{% set " + strings.Repeat("(", n) + "a",
		"index chain":      "{{ a" + strings.Repeat("[0]", n) + " }}",
		"nested index":     "{{ " + strings.Repeat("a[", n),
		"nested call":      "{{ " + strings.Repeat("a(", n),
		"long number":      "{{ " + strings.Repeat("9", n) + " }}",
		"filter block":     "{% filter upper" + strings.Repeat("|upper", n) + " %}{% endfilter %}",
		"set filters":      "{% set x " + strings.Repeat("|upper", n) + " %}{% endset %}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(source)
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, SyntaxError, e.Kind)
			assert.Positive(t, e.Line)
		})
	}
}

// TestLimits sets each bound low and expects it to hold, and a render within
// the bound to pass.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		fits, exceeds string
		lim           Limits
	}{
		"steps":  {`{% for i in range(10) %}{% endfor %}`, `{% for i in range(1000) %}{% endfor %}`, Limits{Steps: 200}},
		"depth":  {`{% macro m(n) %}{% if n %}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(4) }}`, `{% macro m(n) %}{% if n %}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(5) }}`, Limits{Depth: 5}},
		"output": {`{{ 'abcde' * 2 }}`, `{{ 'abcde' * 2 }}x`, Limits{Output: 10}},
		"string": {`{{ 'a' * 64 }}`, `{{ 'a' * 65 }}`, Limits{StringSize: 64}},
		"list":   {`{{ ([0] * 8)|length }}`, `{{ ([0] * 9)|length }}`, Limits{StringSize: 128}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, source := range []string{c.fits, c.exceeds} {
				tmpl, err := Parse(source)
				require.NoError(t, err)
				_, err = tmpl.Render(nil, c.lim)
				if source == c.fits {
					require.NoError(t, err)
					continue
				}
				var e *Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, LimitError, e.Kind)
			}
		})
	}
}
