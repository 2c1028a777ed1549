package app

import (
	"fmt"
	"strings"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine"
)

// startFlags asks for the flags that say what a run goes on from, and returns what reads
// them.
func startFlags(f *Flags) func() (engine.Start, error) {
	from := f.String("from", "", "go on from `latest`, empty, or the checkpoint GENERATION.BATCH (of several regions, with commas)")
	maps := f.Strings("map", nil, "a component, or a keyed state as COMPONENT/OLD=COMPONENT/NEW, has another name than in the checkpoint (`OLD=NEW`, repeatable)")
	drop := f.Strings("drop", nil, "leave the state of a component of the checkpoint behind, or one keyed state of it as COMPONENT/STATE (`NAME`, repeatable)")
	unpublished := f.Bool("drop-unpublished", "with --drop: also what the component has not published yet; with --from: what the checkpoint lists and may be lost")
	takeOver := f.Bool("take-over", "from a copied checkpoint: publish the transactions of the original")
	return func() (engine.Start, error) {
		s := engine.Start{From: *from, Drop: *drop, DropUnpublished: *unpublished, TakeOver: *takeOver}
		if *from != "" && *from != engine.FromLatest && *from != "empty" {
			for name := range strings.SplitSeq(*from, ",") {
				if _, _, err := checkpoint.ParseRef(name); err != nil {
					return s, fmt.Errorf("--from %s: it must be latest, empty, or checkpoints: %w", *from, err)
				}
			}
		}
		for _, m := range *maps {
			before, now, ok := strings.Cut(m, "=")
			if !ok || before == "" || now == "" {
				return s, fmt.Errorf("--map %s: it must be OLD=NEW", m)
			}
			if s.Map == nil {
				s.Map = map[string]string{}
			}
			if other, twice := s.Map[before]; twice {
				return s, fmt.Errorf("--map %s: %q is mapped to %q already", m, before, other)
			}
			s.Map[before] = now
		}
		if err := s.Check(); err != nil {
			return s, fmt.Errorf("--map and --drop: %w", err)
		}
		return s, nil
	}
}
