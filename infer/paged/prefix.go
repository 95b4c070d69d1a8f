package paged

import (
	"crypto/sha256"
	"encoding/binary"
)

// digest names the content of a page together with everything before it. It is a full SHA-256:
// who can choose prompts can not make two of them meet.
type digest [sha256.Size]byte

// Space is everything besides the tokens that the keys and values of a prefix depend on, and who may
// read them. Prefixes of different spaces never meet.
type Space struct {
	Base      uint64 // version of the base weights
	BaseEpoch uint64 // announced changes of the base, should its version not be counted
	Adapter   uint64 // identity of the adapter, 0: none
	Version   uint64 // of the adapter
	Epoch     uint64 // announced changes of the adapter
	Salt      string // cache_salt of the request: only requests with the same salt share pages
}

// root begins the chain of a space. Every field has its own place and the salt its length, so no
// two spaces are spelled alike.
func (s Space) root() digest {
	buf := make([]byte, 0, 64+len(s.Salt))
	buf = append(buf, "graft prefix: "...)
	for _, v := range [...]uint64{s.Base, s.BaseEpoch, s.Adapter, s.Version, s.Epoch, uint64(len(s.Salt))} {
		buf = binary.LittleEndian.AppendUint64(buf, v)
	}
	return sha256.Sum256(append(buf, s.Salt...))
}

// next is the digest of a full page of tokens behind parent.
func (d digest) next(tokens []int32) digest {
	var buf [sha256.Size + 4*PageSize]byte
	copy(buf[:], d[:])
	for i, t := range tokens[:PageSize] {
		binary.LittleEndian.PutUint32(buf[sha256.Size+4*i:], uint32(t))
	}
	return sha256.Sum256(buf[:])
}

// lookup is the page that holds a prefix, with a reference added.
func (p *Pool) lookup(d digest) (int32, bool) {
	id, ok := p.prefixes[d]
	if ok {
		p.share(id)
	}
	return id, ok
}

// remember enters a full, computed page under its prefix, unless another page already holds it.
func (p *Pool) remember(id int32, d digest, adapter uint64) {
	if _, ok := p.prefixes[d]; ok || p.pages[id].hashed {
		return
	}
	g := &p.pages[id]
	g.hashed, g.hash, g.space = true, d, adapter
	p.prefixes[d] = id
}

// Forget drops every cached prefix of an adapter (0: of the base without one): its weights are about
// to change. Its idle pages are the next to be handed out.
func (p *Pool) Forget(adapter uint64) {
	for id := range p.Total() {
		g := &p.pages[id]
		if !g.hashed || g.space != adapter {
			continue
		}
		p.forget(int32(id))
		if g.refs == 0 {
			p.unlink(int32(id))
			p.link(int32(id), int32(len(p.pages)-1))
		}
	}
}

// ForgetAll drops every cached prefix: the base weights are about to change.
func (p *Pool) ForgetAll() {
	for id := range p.Total() {
		p.forget(int32(id))
	}
}
