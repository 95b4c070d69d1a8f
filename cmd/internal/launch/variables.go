package launch

import (
	"strings"

	"github.com/alecthomas/kong"
)

// Variables lets every flag be read from an environment variable: GRAFT_ and the flag's name in capitals, with _
// for -. kong's own DefaultEnvars would set digits apart: GRAFT_ADAM_BETA_1.
func Variables() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		nameVariables(k.Model.Node)
		return nil
	})
}

func nameVariables(node *kong.Node) {
	for _, flag := range node.Flags {
		if flag.Name == "help" || flag.Name == "version" || len(flag.Envs) > 0 {
			continue
		}
		names := []string{"GRAFT_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))}
		flag.Envs, flag.Value.Tag.Envs = names, names
	}
	for _, child := range node.Children {
		nameVariables(child)
	}
}
