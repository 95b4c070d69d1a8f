// Package rewards is the contract between a trainer and whatever judges its completions,
// and the judges that come with it.
//
// # The contract
//
// A reward is a [Func]: it gets a batch and returns exactly one [Score] per sample, finite
// or skipped. [Run] holds every reward to that, adds up the weighted total, and turns each
// breach (a wrong count, a NaN, a deadline, a crash) into an [Error] that names the reward,
// the sample and the remedy. No score is ever repeated, dropped or replaced to make a batch fit.
//
// # Specs
//
// [Parse] reads NAME or NAME:ARGUMENTS; [Describe] lists the names. Arguments are separated
// by commas, the first ones by position, the others key=value: "length:at_most=200,unit=words".
// What follows regex:, regex_full:, py: and exec: is taken as it stands. [ParseAll] reads a
// weight in front: "0.5*format:think".
//
// Rewards that compare with a gold answer read the column named after the colon, or the first
// of answer, solution, ground_truth, final_answer, target. A row without it is an error.
// What counts as an equal answer is the business of package mathverify.
//
// # Python
//
// py:FILE.py:FUNCTION imports the file in one long-lived python3 (another program:
// GRAFT_PYTHON) and calls the function once per batch with TRL's keyword arguments
// (its log_metric, log_extra and environments are not passed):
//
//	def fn(prompts, completions, completion_ids, **columns) -> list[float | None]
//
// Every argument is a list with one entry per sample; a column that a row lacks is None there.
// If every sample has chat messages, prompts are message lists and completions are
// [{"role": "assistant", "content": TEXT}]; otherwise both are strings. trainer_state is an
// object with global_step. Beyond TRL's there are prompt_ids and truncated (bools). A
// function without **kwargs gets only the arguments it names. A function that names completion and not completions is called once per sample, with prompt, completion,
// completion_ids and the columns of that sample, and returns one number or None. An async
// function is awaited; per sample, all calls run at once. Bools, numpy and torch numbers
// count as numbers. py:MODULE:FUNCTION imports a module by name from the working directory
// or the Python path.
//
// # Programs
//
// exec:COMMAND ARGUMENTS starts a program once and speaks JSON lines with it: one request
// line on its stdin, then one response line on its stdout, never more than one request at a time:
//
//	{"id":1,"samples":[{"prompt":"…","messages":[{"role":"user","content":"…"}],"completion":"…",
//	  "completion_ids":[1,2],"prompt_ids":[3],"truncated":false,"columns":{"answer":"72"},
//	  "step":0,"group":0,"index":0}]}
//	{"id":1,"scores":[1.0,null]}
//
// (shown on several lines; each is one). id counts requests from 1 and comes back as it was.
// messages is absent if the dataset is not conversational. scores holds one finite number or
// null per sample. A program that cannot score a batch answers {"id":1,"error":"why"}, which
// stops the run. Output must be flushed after each line. EOF on stdin means: end. Words of
// the command are split at white space; '…' and "…" keep it together, no other character
// is special, and no shell is started.
//
// # Children
//
// Both kinds of child inherit the working directory and the environment, plus
// GRAFT_REWARD with the spec. What they print to stderr (and what Python code prints to
// stdout) appears on stderr behind "[reward NAME] ". A child that misses a deadline is killed
// with everything it started; the next batch starts a fresh one, but a child that died twice
// in a row stays dead. Children end with Close, with the context of a call, and with this
// process, however that ends; so does what they started themselves, except that on Unix the
// sudden death of this process (SIGKILL) reaches the child alone.
//
// The package knows no tokens but as numbers, no model and no trainer. A [Func] owns its
// child process until Close; the caller owns the Funcs.
package rewards
