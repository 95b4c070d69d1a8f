package model

import (
	"graft/kernels"
	"graft/weights"
)

// Model is a decoder whose weights lie in an arena. It is immutable but for training, which writes
// parameters in place.
type Model struct {
	Config  Config
	Arena   *weights.Arena
	Embed   *weights.Linear // [V, C]
	Head    *weights.Linear // [V, C]; the same weight as Embed when tied
	Final   weights.Norm
	Layers  []Layer
	Linears []*weights.Linear // by site: everything an adapter may target
	Ropes   []kernels.Rope    // tables, as Config.Ropes
	Trained []weights.Param   // what full fine-tuning moves; nil when the base is frozen
	Version uint64            // counts changes of the base itself
	// Precision is the contract that the weights are marked with: that of every forward.
	Precision kernels.Precision
}

// Layer is one block. Q, K, V or else QKV are present; Gate, Up or else GateUp.
type Layer struct {
	AttnNorm, FFNorm         weights.Norm
	PostAttnNorm, PostFFNorm weights.Norm // gemma
	QNorm, KNorm             weights.Norm // per head
	Q, K, V, QKV, O          *weights.Linear
	Gate, Up, GateUp, Down   *weights.Linear
	Kind                     LayerKind
}

// Backend is where the model computes.
func (m *Model) Backend() kernels.Backend { return m.Arena.Backend() }
