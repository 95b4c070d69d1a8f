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
		{Info{"math", "math[:COLUMN][,last_number=on|off]",
			"1 if the final answer equals the gold answer as mathematics, else 0; finds \\boxed{}, ####, \"answer is\", the last formula, the last number"}, parseMath},
		{Info{"math_verify", "math_verify[:COLUMN]",
			"1/0 with the verdicts of the math-verify library's defaults, odd ones included"}, parseMathVerify},
		{Info{"accuracy", "accuracy[:COLUMN]",
			"TRL accuracy_reward: 1/0, wants \\boxed{} or \"answer is $...$\"; skips rows whose gold is no formula"}, parseAccuracy},
		{Info{"reasoning_accuracy", "reasoning_accuracy[:COLUMN][,delimiters=</think>|...]",
			"TRL reasoning_accuracy_reward: accuracy of what follows the last </think> (the first delimiter of the list that occurs); 0 without one"}, parseReasoningAccuracy},
		{Info{"cosine", "cosine:MAX_LEN[,min_value_wrong=-1,max_value_wrong=-0.5,min_value_correct=0.5,max_value_correct=1,column=solution]",
			"TRL get_cosine_scaled_reward: accuracy scaled by length; short right answers and long wrong ones score more"}, parseCosine},
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
		{Info{"py", "py:FILE.py:FUNCTION or py:MODULE:FUNCTION",
			"a Python function with TRL's signature (prompts, completions, completion_ids, **columns) -> list, in a long-lived python3"}, parsePython},
		{Info{"exec", "exec:COMMAND [ARGUMENTS]",
			"a long-lived program that answers JSON lines; quote arguments as in a shell"}, parseCommand},
	}
}
