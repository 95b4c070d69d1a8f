package rewards

// Info describes a built-in reward, for help texts and documentation.
type Info struct {
	Name   string // what stands before the colon
	Syntax string // the spec, [] optional
	Doc    string // one line
}

// builtin is a row of the table: an Info and how to make the Func.
type builtin struct {
	Info
	parse func(spec, arguments string) (Func, error)
}

// Describe lists the built-in rewards in the order they should be shown.
func Describe() []Info {
	var infos []Info
	for _, b := range builtins() {
		infos = append(infos, b.Info)
	}
	return infos
}

// builtins is the table of rewards. A function, so that the package keeps no state.
func builtins() []builtin {
	return []builtin{
		{Info{"format", "format[:think|xml|tags=A+B+...]",
			"1/0: think: <think>..</think> first and once (TRL); xml: <reasoning>..</reasoning><answer>..</answer>; tags: these elements in order, once each"}, parseFormat},
		{Info{"regex", "regex:PATTERN",
			"1 if the RE2 pattern is found anywhere in the completion, else 0"}, parseRegex},
		{Info{"regex_full", "regex_full:PATTERN",
			"1 if the RE2 pattern matches the whole completion (dot matches newlines), else 0"}, parseRegexFull},
		{Info{"exact", "exact[:COLUMN][,normalize=space|case|off]",
			"1 if the completion equals the column, else 0; normalize=space (default) ignores runs of white space, case also ignores case"}, parseExact},
		{Info{"length", "length:TARGET or length:at_most=MAX or length:at_least=MIN[,unit=tokens|chars|words]",
			"TARGET: max(0, 1-|len-TARGET|/TARGET); at_most, at_least: 1/0"}, parseLength},
		{Info{"soft_overlong", "soft_overlong:MAX_COMPLETION_LEN[,soft_punish_cache=0]",
			"TRL get_soft_overlong_punishment: 0 up to MAX-cache tokens, falling to -1 at MAX"}, parseSoftOverlong},
		{Info{"repetition", "repetition[:NGRAM_SIZE=3][,max_penalty=-1]",
			"TRL get_repetition_penalty_reward over token ids: (1-unique/total)*max_penalty, max_penalty at most 0"}, parseRepetition},
	}
}
