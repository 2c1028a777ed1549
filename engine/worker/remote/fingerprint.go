package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/isobar-io/isobar/engine/plan"
)

// Fingerprint returns a text that two processes have in common if they have laid out the
// same topology for the same numbers of tasks.
func Fingerprint(p *plan.Plan) string {
	h := sha256.New()
	for _, r := range p.Regions {
		fmt.Fprintf(h, "%s\n", p.Fingerprint(r))
	}
	for _, t := range p.Tasks {
		fmt.Fprintf(h, "%d %s %d\n", t.ID, p.Components[t.Component].ID, t.Index)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
