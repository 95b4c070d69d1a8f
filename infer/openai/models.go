package openai

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
	"unicode"

	"graft/infer"
	"graft/weights"
)

// Adapter is a LoRA adapter under the name that requests call it by. The server owns it.
type Adapter struct {
	Name    string
	Path    string
	Adapter *weights.Adapter
}

// entry is a served model. Requests hold a use of it, so that what they compute with is not freed
// under them.
type entry struct {
	name    string
	root    string // where it was read from
	adapter *weights.Adapter
	created int64
	uses    int
	gone    bool
}

// models are the names that requests may ask for: the base under its names and its adapters.
type models struct {
	engine       *infer.Engine
	anyPrecision bool // see Options

	mu       sync.Mutex
	base     []*entry
	adapters []*entry
	lastID   uint64
	loading  sync.Mutex // one load or unload at a time
}

func newModels(e *infer.Engine, o *Options) (*models, error) {
	m := &models{engine: e, anyPrecision: o.AnyPrecision}
	now := time.Now().Unix()
	for _, name := range o.Names {
		if err := m.checkName(name); err != nil {
			return nil, err
		}
		m.base = append(m.base, &entry{name: name, root: o.Root, created: now})
	}
	for _, a := range o.Adapters {
		if err := m.checkName(a.Name); err != nil {
			return nil, err
		}
		if err := m.checkPrecision(a.Adapter); err != nil {
			return nil, fmt.Errorf("adapter %s: %w", a.Name, err)
		}
		m.adapters = append(m.adapters, &entry{name: a.Name, root: a.Path, adapter: a.Adapter, created: now})
		m.lastID = max(m.lastID, a.Adapter.ID)
	}
	return m, nil
}

// checkPrecision refuses an adapter of another contract: all that one engine serves computes under one.
func (m *models) checkPrecision(ad *weights.Adapter) error {
	if m.anyPrecision {
		return nil
	}
	return m.engine.Model().CheckPrecision(ad)
}

// checkName refuses names that could not be asked for or would hide another.
func (m *models) checkName(name string) error {
	if name == "" || len(name) > 256 {
		return fmt.Errorf("a model name of %d bytes, want 1 to 256", len(name))
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the model name %q holds the character %U", name, r)
		}
	}
	if m.find(name) != nil {
		return fmt.Errorf("two models are called %q; give one another name", name)
	}
	return nil
}

func (m *models) find(name string) *entry {
	for _, list := range [...][]*entry{m.base, m.adapters} {
		if i := slices.IndexFunc(list, func(e *entry) bool { return e.name == name }); i >= 0 {
			return list[i]
		}
	}
	return nil
}

// use finds a model and keeps it until the caller calls drop. No name means the first base name.
func (m *models) use(name string) (*entry, *Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.base[0]
	if name != "" {
		if e = m.find(name); e == nil {
			return nil, unknownModel(name)
		}
	}
	e.uses++
	return e, nil
}

// drop ends a use. The last one of an unloaded adapter frees it.
func (m *models) drop(e *entry) {
	m.mu.Lock()
	e.uses--
	free := e.gone && e.uses == 0
	m.mu.Unlock()
	if free {
		m.free(e)
	}
}

// free returns an adapter's memory between two steps. A closed engine computes nothing any more.
func (m *models) free(e *entry) {
	release := func() error {
		e.adapter.Free()
		return nil
	}
	if err := m.engine.Exclusive(context.Background(), release); errors.Is(err, infer.ErrClosed) {
		_ = release()
	}
}

// load reads an adapter from a path and serves it. inPlace replaces one of the same name; requests
// under way go on with the old one.
func (m *models) load(ctx context.Context, name, path string, inPlace bool) *Fault {
	m.loading.Lock()
	defer m.loading.Unlock()
	m.mu.Lock()
	old := m.find(name)
	switch {
	case old != nil && old.adapter == nil:
		m.mu.Unlock()
		return invalid("lora_name", "%q is the name of the base model", name)
	case old != nil && !inPlace:
		m.mu.Unlock()
		return invalid("lora_name", "The lora adapter %q has already been loaded. Unload it first, or set load_inplace.", name)
	case old == nil:
		if err := m.checkName(name); err != nil {
			m.mu.Unlock()
			return invalid("lora_name", "%v", err)
		}
	}
	m.lastID++
	id := m.lastID
	m.mu.Unlock()
	if _, err := os.Stat(path); err != nil {
		return &Fault{Status: 404, Type: notFound, Param: "lora_path", Message: fmt.Sprintf("there is no adapter at %s", clip(path))}
	}

	var ad *weights.Adapter
	var readErr error
	if err := m.engine.Exclusive(ctx, func() error {
		ad, readErr = m.engine.Model().LoadAdapter(path, id, false)
		return nil
	}); err != nil {
		return faultOf(cause(ctx, err))
	}
	if readErr != nil {
		return invalid("lora_path", "the adapter could not be loaded: %v", readErr)
	}
	fresh := &entry{name: name, root: path, adapter: ad, created: time.Now().Unix()}
	if most := m.engine.Options().RankCols; ad.MaxCols() > most {
		m.free(fresh)
		return invalid("lora_path", "the adapter's rank takes %d columns, but the server was planned for %d: start it with a higher --max-lora-rank", ad.MaxCols(), most)
	}
	if err := m.checkPrecision(ad); err != nil {
		m.free(fresh)
		return invalid("lora_path", "the adapter could not be loaded: %v", err)
	}
	if old != nil {
		m.remove(old)
	}
	m.mu.Lock()
	m.adapters = append(m.adapters, fresh)
	m.mu.Unlock()
	return nil
}

func (m *models) unload(name string) *Fault {
	m.loading.Lock()
	defer m.loading.Unlock()
	m.mu.Lock()
	e := m.find(name)
	m.mu.Unlock()
	if e == nil || e.adapter == nil {
		return &Fault{Status: 404, Type: notFound, Param: "lora_name", Message: fmt.Sprintf("The lora adapter %q cannot be found.", clip(name))}
	}
	m.remove(e)
	return nil
}

// remove takes an adapter from the list. It is freed at once, or by the last request that uses it.
func (m *models) remove(e *entry) {
	m.mu.Lock()
	m.adapters = slices.DeleteFunc(m.adapters, func(other *entry) bool { return other == e })
	e.gone = true
	free := e.uses == 0
	m.mu.Unlock()
	if free {
		m.free(e)
	}
}

// loaded lists the adapters.
func (m *models) loaded() []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.adapters)
}

// card is what /v1/models says of a model, in vLLM's shape.
type card struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	OwnedBy     string       `json:"owned_by"`
	Root        string       `json:"root"`
	Parent      *string      `json:"parent"`
	MaxModelLen int          `json:"max_model_len"`
	Precision   string       `json:"precision"` // Graft's own: the contract that requests are computed under
	Permission  []permission `json:"permission"`
}

type permission struct {
	ID               string  `json:"id"`
	Object           string  `json:"object"`
	Created          int64   `json:"created"`
	AllowCreate      bool    `json:"allow_create_engine"`
	AllowSampling    bool    `json:"allow_sampling"`
	AllowLogProbs    bool    `json:"allow_logprobs"`
	AllowSearch      bool    `json:"allow_search_indices"`
	AllowView        bool    `json:"allow_view"`
	AllowFineTuning  bool    `json:"allow_fine_tuning"`
	Organization     string  `json:"organization"`
	Group            *string `json:"group"`
	IsBlockingAccess bool    `json:"is_blocking"`
}

// cards lists the base names, then the adapters.
func (m *models) cards() []card {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]card, 0, len(m.base)+len(m.adapters))
	for _, e := range m.base {
		out = append(out, m.card(e))
	}
	for _, e := range m.adapters {
		out = append(out, m.card(e))
	}
	return out
}

func (m *models) card(e *entry) card {
	c := card{ID: e.name, Object: "model", Created: e.created, OwnedBy: "graft", Root: e.root, MaxModelLen: m.engine.Options().MaxModelLen, Precision: m.engine.Model().Precision.String(),
		Permission: []permission{{ID: "modelperm-" + newID(), Object: "model_permission", Created: e.created,
			AllowSampling: true, AllowLogProbs: true, AllowView: true, Organization: "*"}}}
	if e.adapter != nil {
		c.Parent = &m.base[0].name
	}
	return c
}
