package template

// expr is an expression, stmt a statement; eval and exec are in the files
// named after what they do. Every node is immutable after parsing.
type expr interface {
	eval(r *render) (any, error)
}

type stmt interface {
	exec(r *render) (flow, error)
}

type (
	constExpr struct{ value any }
	nameExpr  struct {
		id   int
		name string
	}
	listExpr  struct{ items []expr }
	tupleExpr struct{ items []expr }
	dictExpr  struct{ keys, values []expr }
	attrExpr  struct {
		obj  expr
		name string
	}
	itemExpr  struct{ obj, index expr }
	sliceExpr struct{ obj, lo, hi, step expr } // lo, hi, step may be nil
	callExpr  struct {
		callee expr
		args   arguments
	}
	filterExpr struct {
		value  expr // nil inside {% filter %} and {% set x | f %}: the block's text
		name   string
		filter *filter // nil: unknown, an error when reached
		args   arguments
	}
	testExpr struct {
		value expr
		name  string
		test  *test // nil: unknown, an error when reached
		args  arguments
	}
	notExpr   struct{ x expr }
	andExpr   struct{ left, right expr }
	orExpr    struct{ left, right expr }
	condExpr  struct{ cond, yes, no expr } // no may be nil
	unaryExpr struct {
		op string
		x  expr
	}
	binaryExpr struct {
		op          string
		left, right expr
	}
	concatExpr  struct{ parts []expr }
	compareExpr struct {
		first expr
		ops   []string
		rest  []expr
	}
)

// arguments of a call, filter or test: f(a, *star, k=v, **starStar).
type arguments struct {
	pos            []expr
	names          []string
	named          []expr
	star, starStar expr
}

// target of an assignment: exactly one of the three is set.
type target struct {
	id     int // variable, when nsAttr is "" and tuple is nil
	nsAttr string
	tuple  []target
}

type (
	dataStmt   struct{ text string }
	outputStmt struct {
		line int
		x    expr
	}
	ifStmt struct {
		line int
		cond expr
		yes  []stmt
		no   []stmt // an elif is a nested ifStmt
	}
	forStmt struct {
		line      int
		target    target
		iter      expr
		filter    expr // nil: none
		recursive bool
		body      []stmt
		otherwise []stmt
	}
	setStmt struct {
		line   int
		target target
		value  expr
	}
	setBlockStmt struct {
		line    int
		target  target
		filters *filterExpr // nil: none
		body    []stmt
	}
	filterStmt struct {
		line    int
		filters *filterExpr
		body    []stmt
	}
	withStmt struct {
		line    int
		targets []target
		values  []expr
		body    []stmt
	}
	macroStmt struct {
		line int
		id   int
		def  *macroDef
	}
	callStmt struct {
		line   int
		call   *callExpr
		caller *macroDef
	}
	generationStmt struct{ body []stmt }
	flowStmt       struct{ flow flow }
)

// macroDef is the code of a macro or of the body of a call block.
type macroDef struct {
	name     string
	params   []int // variable identifiers
	names    []string
	defaults []expr // of the last len(defaults) parameters
	body     []stmt
	// Which special variables the body names; it may be called with extra
	// arguments only where it does.
	varargs, kwargs, caller bool
}

// flow says how a statement ended.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// Identifier numbers of the variables with a meaning of their own.
const (
	idLoop = iota
	idCaller
	idVarargs
	idKwargs
)
